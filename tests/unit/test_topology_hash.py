"""The topology hash: a digest of links and relative speeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fixtures import GPU, attempts, node, reporting
from fixtures.observing import JOB, LEDGER, Watched
from railwright import protocol
from railwright_operator.topology_hash import VERSION, TopologyHash
from railwright_scheduler.model.snapshot import Node
from railwright_topology.fabric import Fabric
from railwright_topology.links import Links
from railwright_topology.relative_speed import RelativeSpeed
from railwright_watch import cluster_objects

LINKS = Links(2.0, leaving={"r0": 1.0, "r1": 2.0}, reducing=frozenset({"r0", "r1"}))
FABRIC = Fabric(("rack",), {"n0": ("r0",)}, links=(LINKS,))
NODES = (node("n0", "r0"), node("n1", "r1"))
BEFORE, OTHER_VERSION = f"{VERSION}-before", f"{VERSION + 1}-before"


def digest(fabric: Fabric = FABRIC, nodes: tuple[Node, ...] = NODES) -> str:
    return TopologyHash().digest(fabric, nodes)


def test_hash_does_not_depend_on_order() -> None:
    other = replace(LINKS, leaving={"r1": 2.0, "r0": 1.0}, reducing=frozenset({"r1", "r0"}))
    assert digest(replace(FABRIC, links=(other,))) == digest()
    busy = (replace(NODES[0], used={GPU: 8}), NODES[1], node("n2", "r1"))
    assert digest(replace(FABRIC, places={}), busy) == digest()


def test_hash_ignores_differences_of_measurement() -> None:
    again = replace(LINKS, oversubscription=2.01, leaving={"r0": 0.996, "r1": 2.02})
    assert digest(replace(FABRIC, links=(again,))) == digest()
    one, other = (
        (replace(NODES[0], relative_speed=RelativeSpeed(products=share)), NODES[1])
        for share in (0.5, 0.51)
    )
    assert digest(nodes=one) == digest(nodes=other) != digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"leaving": {"r0": 1.0, "r1": 1.5}},
        {"leaving": {"r0": 1.0}},
        {"oversubscription": 4.0},
        {"reducing": frozenset({"r0"})},
    ],
)
def test_hash_changes_with_links(changes: dict[str, object]) -> None:
    other = replace(FABRIC, links=(replace(LINKS, **changes),))  # type: ignore[arg-type]
    assert digest(other) != digest()


def test_hash_changes_with_a_relative_speed_and_back() -> None:
    topology_hash = TopologyHash()
    slow = (replace(NODES[0], relative_speed=RelativeSpeed(products=0.5)), NODES[1])
    digests = [topology_hash.digest(FABRIC, nodes) for nodes in (NODES, slow, NODES)]
    assert digests[0] == digests[2] != digests[1]


@dataclass(frozen=True, slots=True)
class LaterSpeed(RelativeSpeed):
    links: float = 1.0


def test_a_new_speed_changes_no_hash_before_it_counts() -> None:
    """Else every running job would be evaluated, and moved, after the upgrade that brings it."""
    this, later, slow_links = (
        digest(nodes=(replace(NODES[0], relative_speed=speed), NODES[1]))
        for speed in (RelativeSpeed(0.5), LaterSpeed(0.5), LaterSpeed(0.5, links=0.5))
    )
    assert this == later != slow_links


def test_cycle_states_topology_age_and_job_progress() -> None:
    """The state has the age of the topology hash and the steps of the job. Without a topology in
    the Fabric no running job is to migrate."""
    seen = Watched()
    seen.run_cycle(after_s=40.0)
    assert seen.world().topology_age_s == 0.0
    status: dict[str, Any] = {"topology": {"levels": [], "places": []}}
    raw = reporting.raw_object("default", status=status)
    seen.interconnect.fabric_changed(None, cluster_objects.answered(raw))
    seen.run_cycle()
    seen.heartbeat(0, progress=protocol.Progress(7, total_steps=9))
    seen.now_s += 40.0
    world = seen.world()
    assert (world.topology_hash, world.topology_age_s) == (digest(Fabric(), ()), 40.0)
    (job,) = world.jobs
    assert job.progress is not None
    assert (job.progress.step, job.progress.total_steps) == (7, 9)


@pytest.mark.parametrize(
    ("name", "job_uid", "expected"),
    [("job-1", JOB, BEFORE), ("job-2", JOB, ""), ("job-1", "of a deleted job", "")],
)
def test_new_leader_reads_hash_from_placement(name: str, job_uid: str, expected: str) -> None:
    """Links changed before it led: whether the job is to migrate is still to be evaluated."""
    seen = Watched()
    seen.place(1, name=name, job_uid=job_uid, topology_hash=BEFORE)
    assert seen.world().jobs[0].topology_hash == expected
    assert seen.run_cycle().topology_hashes == {JOB: expected}
    assert seen.world().jobs[0].topology_hash == expected


@pytest.mark.parametrize("stored", [OTHER_VERSION, "before"])
def test_hash_of_another_version_is_unknown(stored: str) -> None:
    """It would always differ: jobs would be moved although nothing changed. The leader before may
    have placed the job, or just have begun to."""
    seen = Watched()
    seen.place(1, topology_hash=stored)
    assert seen.world().jobs[0].topology_hash == ""
    begun = attempts.entry(job_uid=JOB, topology_hash=stored)
    plan = seen.run_cycle(ledger=replace(LEDGER, entries=(begun,)))
    assert plan.topology_hashes == {JOB: stored}
    assert seen.world().jobs[0].topology_hash == ""
