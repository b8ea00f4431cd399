"""What a job's ranks were seen to send each other in some steps, on a gang that may be smaller."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Operation(StrEnum):
    """A recorded operation of a group of ranks: a collective, or a message to another rank."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The calls of each rank of a group in all recorded steps: their number and the bytes of their
    buffers, ``size``, as in ``communication.graph.Traffic``. For a send, ``hop`` is the position of
    the receiver in the group relative to the sender."""

    operation: Operation
    element: str
    calls: int
    size: int
    hop: int = 0


@dataclass(frozen=True, slots=True)
class GroupProfile:
    """Groups of ranks that did the same, each ascending; of unequal ones ``seen`` has the most."""

    groups: tuple[tuple[int, ...], ...]
    seen: tuple[CallRecord, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A recording of ``ranks`` ranks in ``steps`` steps, on these kinds of ``devices`` (empty if
    unknown). Profiles are compared and looked up by the ``digest`` of their ``kinds``, which may
    have all ranks hundreds of times."""

    ranks: int
    steps: int
    kinds: tuple[GroupProfile, ...] = field(compare=False)
    devices: tuple[str, ...] = ()
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(repr(self.kinds).encode(), digest_size=16)
        object.__setattr__(self, "digest", digest.hexdigest())

    def lacks(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Those of these kinds, as nodes are labelled, that it was not taken on, sorted; an empty
        one is not known."""
        recorded = {_plain(device) for device in self.devices}
        if not recorded:
            return ()
        return tuple(sorted(each for each in {*devices} if each and _plain(each) not in recorded))


def _plain(device: str) -> str:
    """The letters and digits of a name: labels have dashes for spaces, and a suffix if shared."""
    return "".join(filter(str.isalnum, device.lower())).removesuffix("shared")
