"""Run work on one rank or on all, and give every rank the result.

An error on one rank is raised on all: otherwise the others would wait in the next collective.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

Found = TypeVar("Found")


def rank() -> int:
    """This process among all; 0 when it is alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def demand_all_ranks() -> None:
    """Raise RuntimeError if there are ranks of which torch does not know: each would be alone."""
    count = os.environ.get("WORLD_SIZE", "1")
    if count not in ("", "1") and not dist.is_initialized():
        raise RuntimeError(
            f"torch.distributed is not initialized, and there are {count} ranks: call "
            "init_process_group before load and save, and destroy_process_group after them"
        )


def from_rank_zero(work: Callable[[], Found]) -> Found:
    """What ``work`` returns on rank 0, on every rank. An error there is raised on all ranks: as
    OSError where it was one, else as it was on rank 0 and as RuntimeError on the others."""
    (value,) = _shared(work if rank() == 0 else None, _broadcast)
    return value  # type: ignore[no-any-return]


def from_all(work: Callable[[], Found]) -> list[Found]:
    """What ``work`` returns on each rank, by rank. Raises as ``from_rank_zero``."""
    return _shared(work, _gather)


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any = None
    error: str | None = None
    is_os_error: bool = False


def _shared(
    work: Callable[[], Any] | None, exchange: Callable[[_Outcome], list[_Outcome]]
) -> list[Any]:
    outcome = _Outcome()
    try:
        if work is not None:
            outcome = _Outcome(work())
    except OSError as error:
        outcome = _Outcome(error=f"rank {rank()}: {error}", is_os_error=True)
    except BaseException as error:
        # The others wait for an outcome, also of a rank that exits.
        exchange(_Outcome(error=f"rank {rank()}: {type(error).__name__}: {error}"))
        raise
    return [_value(each) for each in exchange(outcome)]


def _broadcast(outcome: _Outcome) -> list[_Outcome]:
    parcel = [outcome]
    if dist.is_initialized():
        dist.broadcast_object_list(parcel, src=0)
    return parcel


def _gather(outcome: _Outcome) -> list[_Outcome]:
    outcomes = [outcome] * world_size()
    if dist.is_initialized():
        dist.all_gather_object(outcomes, outcome)
    return outcomes


def _value(outcome: _Outcome) -> Any:
    if outcome.error is not None:
        raise (OSError if outcome.is_os_error else RuntimeError)(outcome.error)
    return outcome.value
