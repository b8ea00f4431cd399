"""Profiles as a pre-run would record them, if ranks did what is derived of a workload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from railwright_scheduler.communication import derive
from railwright_scheduler.communication.graph import Collective, Traffic
from railwright_scheduler.profile import Kind, Operation, Profile, Seen
from railwright_scheduler.workload import Workload

STEPS = 3


def profile(workload: Workload) -> Profile:
    """What all of its ranks send."""
    traffic: dict[tuple[tuple[int, ...], ...], list[Traffic]] = defaultdict(list)
    for each in derive.communicators(*workload.parts):
        if each.ranks > 1:
            traffic[tuple(map(tuple, each.grid.groups(*each.axes).tolist()))] += each.traffic
    kinds = tuple(
        Kind(groups, tuple(_seen(its, len(groups[0])))) for groups, its in traffic.items()
    )
    return Profile(workload.split.ranks, STEPS, kinds)


def _seen(its: list[Traffic], ranks: int) -> Iterator[Seen]:
    """Calls of one operation are counted together, whatever they were for."""
    found: dict[tuple[Operation, int], tuple[int, int]] = {}
    for traffic in its:
        for operation, hop, calls in _calls(traffic, ranks):
            before, sizes = found.get((operation, hop), (0, 0))
            found[operation, hop] = before + calls, sizes + calls * traffic.size
    for (operation, hop), (calls, size) in found.items():
        yield Seen(operation, "bfloat16", calls, size, hop)


def _calls(traffic: Traffic, ranks: int) -> Iterator[tuple[Operation, int, int]]:
    calls = STEPS * traffic.count
    if traffic.collective not in (Collective.SEND, Collective.RING):
        # What is dispatched to experts is recorded as what it calls: an exchange of all with all.
        dispatched = traffic.collective is Collective.DISPATCH
        yield Operation.ALL_TO_ALL if dispatched else Operation(traffic.collective), 0, calls
        return
    # Activations go one way, and gradients come the other: half of it each.
    for hop in (1, -1):
        yield Operation.SEND, hop, calls // 2
        if traffic.collective is Collective.RING:
            yield Operation.SEND, hop * (1 - ranks), calls // 2
