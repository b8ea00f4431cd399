"""The communicators of a gang as its ranks recorded them, without its parallelism.

Used for opaque workloads, and for jobs without a workload. The groups are those of the profile, so
it must be of all ranks of the job. Nothing is known of what goes on beside the traffic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from railwright_scheduler.communication.graph import Collective, Communicator, Transfer
from railwright_scheduler.communication.grid import Axis, Grid
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile

COLLECTIVES: Mapping[Operation, Collective] = MappingProxyType(
    {
        Operation.ALL_REDUCE: Collective.ALL_REDUCE,
        Operation.REDUCE_SCATTER: Collective.REDUCE_SCATTER,
        Operation.ALL_GATHER: Collective.ALL_GATHER,
        Operation.ALL_TO_ALL: Collective.ALL_TO_ALL,
        # Around a ring of ranks as many bytes go, past each of them, as of one with all parts.
        Operation.BROADCAST: Collective.ALL_GATHER,
        Operation.SCATTER: Collective.ALL_GATHER,
        Operation.REDUCE: Collective.REDUCE_SCATTER,
        Operation.GATHER: Collective.REDUCE_SCATTER,
        Operation.SEND: Collective.SEND,
    }
)


@dataclass(frozen=True, slots=True)
class RecordedGroups(Grid):
    """Ranks in a line, of which some are in these groups of equal size."""

    rows: tuple[tuple[int, ...], ...]

    def size(self, *axes: Axis) -> int:
        """The number of ranks of a group."""
        return len(self.rows[0])

    def groups(self, *axes: Axis) -> NDArray[np.int64]:
        """The groups, a row each."""
        return np.array(self.rows, dtype=np.int64)


def communicators(profile: Profile) -> tuple[Communicator, ...]:
    """The communicators that were recorded, one for each kind of groups, and one for each distance
    over which ranks of a kind sent."""
    found = [each for kind in profile.kinds for each in _groups(kind, profile.steps)]
    line = ((Axis.RANK, profile.ranks),)
    return tuple(
        Communicator(f"recorded {number}", RecordedGroups(line, rows), (Axis.RANK,), transfers)
        for number, (rows, transfers) in enumerate(found, 1)
    )


_Groups = tuple[tuple[tuple[int, ...], ...], tuple[Transfer, ...]]


def distances(kind: GroupProfile) -> frozenset[int]:
    """How far apart in their groups the senders and receivers of this kind are."""
    return frozenset(abs(seen.hop) for seen in kind.seen if seen.operation is Operation.SEND)


def _groups(kind: GroupProfile, steps: int) -> Iterator[_Groups]:
    """Its groups with their collectives, and pairs of ranks that are as far apart in their group as
    a sender and its receiver, with what these sent."""
    collectives: list[Transfer] = []
    sends: dict[int, list[Transfer]] = defaultdict(list)
    for seen in kind.seen:
        if seen.size and seen.operation is Operation.SEND:
            sends[abs(seen.hop)].append(transfer(seen, steps))
        elif seen.size:
            collectives.append(transfer(seen, steps))
    if collectives:
        yield kind.groups, tuple(collectives)
    for distance, transfers in sorted(sends.items()):
        pairs = tuple(
            pair for group in kind.groups for pair in zip(group, group[distance:], strict=False)
        )
        if pairs and distance:
            yield pairs, tuple(transfers)


def transfer(seen: CallRecord, steps: int, *, growth: float = 1.0) -> Transfer:
    """These calls in a step, with buffers that are so many times larger."""
    count = max(1, round(seen.calls / steps))
    what = f"{seen.operation} of {seen.element}"
    size = round(seen.size / steps / count * growth)
    return Transfer(what, COLLECTIVES[seen.operation], size, count)
