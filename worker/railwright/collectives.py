"""Run work on one rank or on all, and give every rank the result.

An error on one rank is raised on all: otherwise the others would wait in the next collective.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

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
    """What ``work`` returns on rank 0, on every rank. Raises OSError when it did so there."""
    outcome = _outcome(work) if rank() == 0 else (None, None)
    if dist.is_initialized():
        parcel = [outcome]
        dist.broadcast_object_list(parcel, src=0)
        outcome = parcel[0]
    return _unpacked(outcome)


def from_all(work: Callable[[], Found]) -> list[Found]:
    """What ``work`` returns on each rank, by rank. Raises OSError when it did so on any."""
    outcomes = [_outcome(work)] * world_size()
    if dist.is_initialized():
        dist.all_gather_object(outcomes, outcomes[0])
    return [_unpacked(outcome) for outcome in outcomes]


Outcome = tuple[Found | None, str | None]


def _outcome(work: Callable[[], Found]) -> Outcome[Found]:
    try:
        return work(), None
    except OSError as error:
        return None, f"rank {rank()}: {error}"


def _unpacked(outcome: Outcome[Found]) -> Found:
    value, error = outcome
    if error is not None:
        raise OSError(error)
    return value  # type: ignore[return-value]  # None only where work returned it
