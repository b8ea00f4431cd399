"""The nodes of a cluster, cycle after cycle."""

from __future__ import annotations

from dataclasses import replace

from fixtures import observing
from railwright_operator.machines import Machines
from railwright_operator.watch.pod_index import PodIndex
from railwright_topology.interconnect import Interconnect


def test_nothing_is_kept_of_attempts_and_nodes_that_are_gone() -> None:
    """The network is the same for months, and each attempt has other nodes."""
    records = {name: observing.node_record(name) for name in ("n0", "n1", "n2", "n3")}
    places = {"n0": ("r0",), "n1": ("r0",), "n2": ("r1",), "n3": ("r1",)}
    interconnect = Interconnect(("rack",), places)
    machines = Machines(records, PodIndex(lambda uid: None))
    for cycle in range(50):
        added = replace(observing.node_record(f"more-{cycle}"), uid="more")
        records["more"] = added
        machines.build_nodes(interconnect, {})
        assert machines.racks(("n0", "n1")) == 1
        assert machines.racks(("n1", "n2", f"gone-{cycle}")) == 2
    assert len(machines._racks) + len(machines._racks_before) <= 4
    assert len(machines._domains) == len(records)


def test_racks_are_counted_once_while_an_attempt_lives() -> None:
    counted: list[tuple[str, ...]] = []

    class Counting(Machines):
        def _count_racks(self, nodes: tuple[str, ...]) -> int | None:
            counted.append(nodes)
            return super()._count_racks(nodes)

    machines = Counting({}, PodIndex(lambda uid: None))
    interconnect = Interconnect(("rack",), {"n0": ("r0",)})
    for _ in range(5):
        machines.build_nodes(interconnect, {})
        assert machines.racks(("n0",)) == 1
    assert counted == [("n0",)]
    machines.build_nodes(Interconnect(("rack",), {}), {})
    assert machines.racks(("n0",)) is None
