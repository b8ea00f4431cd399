"""The domains that a gang of several roles spans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import GPU, cluster, job, node
from railwright_scheduler.model.scale_up_domains import resolve_domains
from railwright_scheduler.model.snapshot import Job, Role, Snapshot, TopologyConstraints
from railwright_scheduler.policy.decide import decide
from railwright_topology.source_reports import SCALE_UP

ANYWHERE = TopologyConstraints()


def _gang(*replicas: int, constraints: TopologyConstraints = ANYWHERE) -> Job:
    """A gang with so many pods in each role, each on a node of its own."""
    roles = (
        Role(count, {GPU: 8}, name=f"r{at}", constraints=constraints)
        for at, count in enumerate(replicas)
    )
    return replace(job(), roles=tuple(roles))


def _racks(gang: Job, **racks: int) -> Snapshot:
    """So many free nodes in each rack; a rack is in the block of its first letter."""
    machines = [
        node(f"{rack}-{at}", rack[0], rack) for rack, count in racks.items() for at in range(count)
    ]
    return cluster(*machines, jobs=(gang,), levels=("block", "rack"))


def _taken(snapshot: Snapshot) -> set[str]:
    (admit,) = decide(snapshot).admitted
    return {name.rpartition("-")[0] for name in admit.nodes}


def test_gang_starts_in_the_smallest_rack_that_holds_it() -> None:
    """The first role by itself would start in rack x1, which has no node left for the second."""
    assert _taken(_racks(_gang(2, 2), x1=2, x2=5, y1=4)) == {"y1"}


def test_gang_spans_as_few_racks_as_one_role_would() -> None:
    """Each role by itself would start in the smallest rack that holds it."""
    assert _taken(_racks(_gang(2, 2, 2), x1=2, x2=3, x3=3)) == {"x2", "x3"}


def test_gang_starts_in_one_block_if_that_takes_no_more_racks() -> None:
    assert _taken(_racks(_gang(3, 3), x1=3, y1=4, y2=4, z1=3)) == {"y1", "y2"}


@pytest.mark.parametrize(
    ("preferred", "racks"), [("", {"x1", "y1"}), ("block", {"z1", "z2", "z3"})]
)
def test_gang_starts_in_one_domain_of_its_preferred_tier(preferred: str, racks: set[str]) -> None:
    gang = _gang(3, 3, constraints=TopologyConstraints(preferred=preferred))
    assert _taken(_racks(gang, x1=3, y1=3, z1=2, z2=2, z3=2)) == racks


def test_gang_without_capacity_in_preferred_tier_starts_outside() -> None:
    gang = _gang(3, 3, constraints=TopologyConstraints(preferred="rack"))
    assert _taken(_racks(gang, x1=4, x2=2, y1=4)) == {"x1", "x2"}


def test_gang_prefers_a_scale_up_domain_for_all_roles() -> None:
    """The nodes of rack a are in none, and together one domain of that level."""
    levels = ("rack", SCALE_UP)
    machines = [
        node(f"{rack}-{at}", *resolve_domains(levels, (rack, domain)))
        for rack, domain, count in (("a", "", 4), ("b", "domain-b", 5))
        for at in range(count)
    ]
    gang = _gang(2, 2, constraints=TopologyConstraints(preferred=SCALE_UP))
    assert _taken(cluster(*machines, jobs=(gang,), levels=levels)) == {"b"}
