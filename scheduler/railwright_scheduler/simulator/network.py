"""Links between nodes, and jobs with traffic, in the runs with a network. In others there is no
topology and no job has a workload.

Two nodes share a rack. The bandwidth of its uplinks changes, and with it the topology hash of every
leader, at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_scheduler.simulator.seeded_random import SeededRandom
from railwright_topology.links import Links

CHANGES_PERMILLE = 300
ROOMS = (2.0, 2.0, 0.05)
MACHINE = "DGX A100"
RANKS_PER_NODE = 8

_MODEL = Transformer(
    layers=8,
    hidden=2048,
    heads=16,
    kv_heads=16,
    head_size=128,
    feed_forward=8192,
    vocabulary=51_200,
)


class Network:
    """How much each rack's uplinks let out, drawn from its random source, if it has one.

    While it ``lasts`` no job comes to its end, or hardly any would run for long enough to be moved.
    """

    def __init__(self, rng: SeededRandom | None = None) -> None:
        self._random = rng
        self._rooms: dict[str, float] = {}
        self.lasts = rng is not None
        self.changes = 0
        self.changed_s = 0

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of its levels."""
        return () if self._random is None else ("rack",)

    @property
    def machine(self) -> str:
        """The kind of all nodes."""
        return "" if self._random is None else MACHINE

    @property
    def links(self) -> tuple[Links, ...]:
        """What is known of each level."""
        return tuple(Links(leaving=dict(self._rooms)) for _ in self.levels)

    @property
    def topology_hash(self) -> str:
        """Another value after each change."""
        return "" if self._random is None else f"after {self.changes}"

    def place(self, node: str) -> tuple[str, ...]:
        """The domains of a node."""
        return tuple(_rack(node) for _ in self.levels)

    def workload(self, num_nodes: int) -> Workload | None:
        """The workload of a job of this number of nodes; None if it has none."""
        if self._random is None or num_nodes == 1:
            return None
        return workload_of(Parallelism(tensor=RANKS_PER_NODE, data=num_nodes))

    def pass_time(self, nodes: Sequence[str], *, now_s: int) -> str:
        """Change the bandwidth of one rack's uplinks; return it."""
        if self._random is None or not nodes or not self._random.happens(CHANGES_PERMILLE):
            return ""
        rack, capacity = _rack(self._random.pick(nodes)), self._random.pick(ROOMS)
        if self._rooms.get(rack) == capacity:
            return ""
        self._rooms[rack] = capacity
        self.changes += 1
        self.changed_s = now_s
        return f"{rack} lets out {capacity}"


def workload_of(split: Parallelism) -> Workload:
    """What jobs train, in so many parts."""
    return Workload(_MODEL, split, Recipe(2048, 1, split.data))


def _rack(node: str) -> str:
    """Two nodes that follow each other share one: n0 and n1, n2 and n3."""
    return f"r{int(node[1:]) // 2}"
