"""A training step as flows between nodes: who sends whom how much at the same time, and how what
that takes adds up. It shares with the cost model what is computed and the bytes of each collective,
and nothing of how links are shared.

What is taken for granted:

- A ring's rounds are all alike: each rank sends as much to the next one, which must have it before
  the round after. So a ring takes as long as if all rounds were one flow between neighbours. All
  groups of a communicator begin at once. In an all-to-all each pair exchanges at the same time. Of
  a pipeline, activations go one way while gradients come the other.
- Groups that go through the same nodes send as one, over all adapters of a node.
- Messages cost no time of their own: their number is the same wherever ranks stand.
- What stays inside of nodes, and what is computed, takes as long as the cost model says, and so
  much longer beside a collective as that has multiprocessors. Going back takes twice as long as
  going forward.
- Where switches add up what a group sends, each adapter sends its part once and gets the sum once:
  as around a ring, but half as much.
- A step is its phases one after the other: for each micro-batch what ranks wait for, then what is
  left of the sums of gradients when the last backward pass is over. All that goes on beside the
  same begins at once, and counts as far as it takes longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bench.flows import Flow
from railwright_scheduler.arrays import Ints
from railwright_scheduler.communication import derive
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Transfer
from railwright_scheduler.communication.grid import Axis
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import COLLECTIVE_BLOCKS, Machine
from railwright_scheduler.model.workload import Sharding, Workload

RINGS = (
    Collective.ALL_REDUCE,
    Collective.REDUCE_SCATTER,
    Collective.ALL_GATHER,
    Collective.RING,
    Collective.SEND,
)
EXCHANGES = (Collective.ALL_TO_ALL, Collective.DISPATCH)

LAYERS = ("matrix products", "attention", "memory")
MICRO_BATCHES = (*LAYERS, "host", *step.MICRO_BATCHED)
"""Parts of a step that its micro-batches take, one after the other."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What these communicators send in a step beside ``overlap``; nodes of a flow are ranks."""

    names: tuple[str, ...]
    overlap: Overlap
    flows: tuple[Flow, ...]

    def of(self, nodes: Ints) -> list[Flow]:
        """The same between the nodes that these ranks are."""
        where = nodes.tolist()
        return [(where[one], where[other], size) for one, other, size in self.flows]


Adding = Callable[[list[int]], bool]
"""Whether switches add up what these node ranks send each other."""


def _never(_: list[int]) -> bool:
    return False


def phases(workload: Workload, per_node: int, adding: Adding = _never) -> tuple[Phase, ...]:
    """Those that send between nodes. What nothing hides is sent one communicator after the other,
    all that goes on beside the same at once."""
    found: dict[tuple[str, Overlap], list[tuple[str, list[Flow]]]] = {}
    for communicator in derive.communicators(*workload.parts):
        for overlap in Overlap:
            flows = list(_flows(communicator, overlap, per_node, adding))
            if flows:
                alone = communicator.name if overlap is Overlap.NOTHING else ""
                found.setdefault((alone, overlap), []).append((communicator.name, flows))
    return tuple(
        Phase(tuple(name for name, _ in parts), overlap, _summed(flows for _, flows in parts))
        for (_, overlap), parts in found.items()
    )


def step_s(workload: Workload, machine: Machine, took_s: Mapping[Phase, float]) -> float:
    """Seconds of a step of which each phase took so long."""
    _, split, recipe = workload.parts
    parts = dict(step.predict(*workload.parts, machine).parts)
    crossing = {name for phase in took_s for name in phase.names}
    within_node = {name: its_s for name, its_s in parts.items() if name not in crossing}
    micro_batches = recipe.micro_batches(split)
    layers_s = sum(parts.get(name, 0.0) for name in LAYERS)
    backward_s = layers_s * recipe.passes / (recipe.passes + 1)
    beside_s = {
        Overlap.NOTHING: 0.0,
        Overlap.ATTENTION: parts.get("attention", 0.0),
        Overlap.PRODUCTS: parts["matrix products"],
        Overlap.MICRO_BATCH: layers_s,
        Overlap.OUTPUT: parts.get("output", 0.0),
        Overlap.BACKWARD: backward_s
        / (1 if recipe.sharding >= Sharding.GRADIENTS else micro_batches),
    }
    waited_s = sum(within_node.get(name, 0.0) for name in step.MICRO_BATCHED)
    after_s = sum(
        its_s
        for name, its_s in within_node.items()
        if name not in (*MICRO_BATCHES, "pipeline bubble")
    )
    lacking = COLLECTIVE_BLOCKS / machine.device.multiprocessors
    for phase, its_s in took_s.items():
        longer_s = its_s - min(its_s, beside_s[phase.overlap]) * (1 - lacking)
        if {*phase.names} <= {*step.MICRO_BATCHED}:
            waited_s += longer_s
        else:
            after_s += longer_s
    batches_s = layers_s + within_node.get("host", 0.0) + waited_s
    bubble_s = (split.pipeline - 1) / split.virtual * batches_s / micro_batches
    return batches_s + bubble_s + after_s


def _flows(
    communicator: Communicator, overlap: Overlap, per_node: int, adding: Adding
) -> Iterator[Flow]:
    groups = communicator.grid.groups(*communicator.axes) // per_node
    nodes, counts = np.unique(groups, axis=0, return_counts=True)
    for traffic in communicator.traffic:
        if traffic.overlap is not overlap or communicator.ranks == 1:
            continue
        assert traffic.collective in (*RINGS, *EXCHANGES), traffic.collective
        two_ways = Axis.PIPELINE in communicator.axes
        for row, times in zip(nodes.tolist(), counts.tolist(), strict=True):
            sent = (
                _along(traffic, row, adding)
                if traffic.collective in RINGS
                else _to_all(traffic, row)
            )
            for one, other, size in sent:
                if one == other or not size:
                    continue
                if two_ways:
                    yield one, other, times * size / 2
                    yield other, one, times * size / 2
                else:
                    yield one, other, times * size


def _along(traffic: Transfer, row: list[int], adding: Adding) -> Iterator[Flow]:
    """From each rank's node to the next one's, and from the last to the first."""
    size = float(traffic.sent(len(row)))
    if traffic.collective is Collective.ALL_REDUCE and adding(row):
        size = float(traffic.count * traffic.size)
    followers = row[1:] if traffic.collective is Collective.SEND else [*row[1:], row[0]]
    for one, other in zip(row, followers, strict=False):
        yield one, other, size


def _to_all(traffic: Transfer, row: list[int]) -> Iterator[Flow]:
    """From each rank to each other one; a token that is dispatched crosses once to each node."""
    held = {node: row.count(node) for node in row}
    sent = traffic.count * traffic.size / len(row)
    if traffic.routing:
        reached, _ = traffic.routing.reached(len(held), len(row) // len(held))
        sent *= reached
    for one, its in held.items():
        for other, others in held.items():
            yield one, other, its * others * sent


def _summed(parts: Iterator[list[Flow]]) -> tuple[Flow, ...]:
    """What a node sends another one goes as one."""
    found: dict[tuple[int, int], float] = {}
    for flows in parts:
        for one, other, size in flows:
            found[one, other] = found.get((one, other), 0.0) + size
    return tuple((one, other, size) for (one, other), size in found.items())
