"""All that the order of one gang's ranks depends on, as a value: what they do, and on what."""

from __future__ import annotations

from dataclasses import dataclass, replace

from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import MACHINES, Machine
from railwright_scheduler.remembered import Key
from railwright_scheduler.workload import Workload
from railwright_topology.pace import EVEN, Pace

KEPT_BYTES, KEPT_NODE_BYTES = 8_192, 64
"""Of a question and its answer, and of each node at each tier: numbers in tuples, twice."""


@dataclass(frozen=True, slots=True)
class Tier:
    """``domains`` has that of each node, ``room`` how many may send out of each domain, and
    ``left`` how many of those may while other jobs send as well; ``summing`` says of each domain
    whether its switches add up what crosses them."""

    domains: tuple[int, ...]
    room: tuple[float, ...]
    left: tuple[float, ...]
    summing: tuple[bool, ...]
    oversubscription: float


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of these nodes, which are in the network's order; the nearest tier is the
    first. ``kinds`` are the names of their machines, each with its pace, and ``stands`` that of
    each node; it is empty if all are of one. ``before`` has the node of each rank in the attempt
    before, -1 if it is none of these; it is empty if there was none. ``budget`` is how many pairs
    may be judged."""

    workload: Workload
    nodes: int
    ranks_per_node: int
    segment: int
    kinds: tuple[tuple[str, Pace], ...]
    stands: tuple[int, ...]
    tiers: tuple[Tier, ...]
    before: tuple[int, ...]
    budget: int

    @property
    def key(self) -> Key:
        """What answers to it are kept by."""
        size = KEPT_BYTES + KEPT_NODE_BYTES * self.nodes * (len(self.tiers) + 2)
        asked = replace(self, workload=replace(self.workload, profile=None))
        return Key((asked, self.workload.key), size)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Of these kinds, with as many devices as a node has ranks; none unless all kinds are known
        and can run the job."""
        found = [
            MACHINES[name].paced(pace).of(self.ranks_per_node)
            for name, pace in self.kinds
            if name in MACHINES and MACHINES[name].devices >= self.ranks_per_node
        ]
        misfit = any(step.misfit(self.workload, each) for each in found)
        return () if misfit or len(found) < len(self.kinds) else tuple(found)

    @property
    def even(self) -> Question:
        """The same if all machines were as fast as most of their kind."""
        names = sorted({name for name, _ in self.kinds})
        stands = (names.index(self.kinds[its][0]) for its in self.stands)
        kinds = tuple((name, EVEN) for name in names)
        return replace(self, kinds=kinds, stands=tuple(stands) if len(names) > 1 else ())

    @property
    def share(self) -> float:
        """Of a node's adapters those that the gang has; 0 where not all machines are known."""
        devices = [MACHINES[name].devices if name in MACHINES else 0 for name, _ in self.kinds]
        return self.ranks_per_node / max(devices) if all(devices) else 0.0
