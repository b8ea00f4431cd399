"""The running operator places gangs: whole, close together, by priority, and never too many."""

from __future__ import annotations

import collections
from typing import Any

from integration import operator_site
from integration.operator_site import Floor, Job, Site
from railwright_api import names
from railwright_testbed import waiting

FIRST_START = "first start"
PAGES = "hugepages-2Mi"


def test_gang_gets_rack_that_holds_it_with_ranks_in_order(site: Site) -> None:
    """Only one rack has enough nodes."""
    with operator_site.floor_on(site, (1, 3, 2)) as floor:
        status = floor.apply("gang", nodes=3).until_bound()
        assert (status["nodes"], status["racks"]) == (3, 1)
        placement = site.admin.get(floor.path(names.PLACEMENTS) + "/gang-1")["spec"]
        assert placement["nodes"] == floor.nodes[1:4]
        assert {"level": names.LABEL_RACK, "domains": 1} in placement["spans"]
        assert (placement["attempt"], placement["reason"]) == (1, FIRST_START)
        assert placement["epoch"] == site.ledger()["spec"]["epoch"]


def test_gang_larger_than_a_rack_spans_the_fewest(site: Site) -> None:
    """Ranks fill one rack after the other."""
    with operator_site.floor_on(site, (1, 3, 2)) as floor:
        job = floor.apply("gang", nodes=5)
        assert job.until_nodes() == floor.nodes[1:]
        assert job.status()["racks"] == 2


def test_two_small_jobs_share_a_node(floor: Floor) -> None:
    jobs = [floor.apply(name, nodes=1, gpus=4) for name in ("one", "two")]
    nodes = [job.until_nodes() for job in jobs]
    assert nodes[0] == nodes[1]


def test_no_node_gives_more_than_it_has(site: Site) -> None:
    with operator_site.floor_on(site, (2,)) as floor:
        jobs = [floor.apply(f"small-{number}", nodes=1, gpus=3) for number in range(6)]
        waiting.until(
            lambda: _reasons(jobs)["NotEnoughNodes"] == 2 and len(_nodes(jobs)) == 4,
            "four bound and two waiting",
            deadline_s=30,
            evidence=lambda: str([job.status() for job in jobs]),
        )
        assert collections.Counter(_nodes(jobs)) == dict.fromkeys(floor.nodes, 2)
        bound = next(job for job in jobs if job.bound())
        bound.delete()
        jobs.remove(bound)
        waiting.until(lambda: len(_nodes(jobs)) == 4, "another in its place", deadline_s=60)
        assert collections.Counter(_nodes(jobs)) == dict.fromkeys(floor.nodes, 2)


def test_pods_of_others_take_their_room(site: Site) -> None:
    with operator_site.floor_on(site, (2,)) as floor:
        holder = floor.apply("holder", nodes=1)
        (held,) = holder.until_nodes()
        job = floor.apply("whole", nodes=2)
        job.until_said("1/2 nodes available")
        (other,) = {*floor.nodes} - {held}
        floor.create(_stranger(other, gpus=1))
        job.until_said("0/2 nodes available")
        holder.delete()
        message = job.until_said("1/2 nodes available")["message"]
        assert "1 too small beside pods of no TrainingJob" in message
        # A pod of no job may never end: the job reserves nothing that such a pod holds.
        job.until_older()
        part = floor.apply("part", nodes=2, gpus=7)
        part.until_bound()
        part.delete()
        site.plane.kubectl("-n", floor.name, "delete", "pod", "stranger", "--wait=false")
        assert job.until_nodes() == floor.nodes


def test_huge_pages_are_found_and_shared(site: Site) -> None:
    with operator_site.floor_on(site, (1,)) as floor:
        job = floor.apply("job", nodes=1, gpus=1, resources={"cpu": 1, PAGES: "1.5Gi"})
        message = job.until_reason("NeverFits")["message"]
        assert f"1536Mi {PAGES}" in message
        assert f"no node has any {PAGES}" in message
        floor.add("huge", 1, pages="2Gi")
        assert job.until_nodes() == floor.nodes[1:]
        second = floor.apply("second", nodes=1, gpus=1, resources={"cpu": 1, PAGES: "514Mi"})
        second.until_reason("NotEnoughNodes")
        second.delete()
        third = floor.apply("third", nodes=1, gpus=1, resources={"cpu": 1, PAGES: "512Mi"})
        assert third.until_nodes() == floor.nodes[1:]


def test_the_higher_priority_class_goes_first(site: Site) -> None:
    with operator_site.floor_on(site, (1,)) as floor:
        floor.create(_priority_class(f"{floor.name}-urgent", 1000))
        holder = floor.apply("holder", nodes=1)
        holder.until_bound()
        low = floor.apply("low", nodes=1)
        low.until_reason("NotEnoughNodes")
        high = floor.apply("high", nodes=1, priorityClassName=f"{floor.name}-urgent")
        high.until_reason("NotEnoughNodes")
        holder.delete()
        high.until_bound()
        assert high.pods()[0]["spec"]["priority"] == 1000
        assert low.bound() == {}
        assert low.status()["phase"] == "Queued"


def test_job_without_a_class_goes_by_the_default_class(site: Site) -> None:
    """As its pods do."""
    with operator_site.floor_on(site, (1,)) as floor:
        batch, usual = f"{floor.name}-batch", f"{floor.name}-usual"
        floor.create(_priority_class(batch, 10))
        floor.create(_priority_class(usual, 1000) | {"globalDefault": True})
        try:
            holder = floor.apply("holder", nodes=1)
            holder.until_bound()
            older = floor.apply("older", nodes=1, priorityClassName=batch)
            older.until_reason("NotEnoughNodes")
            plain = floor.apply("plain", nodes=1)
            plain.until_reason("NotEnoughNodes")
            holder.delete()
            plain.until_bound()
            assert plain.pods()[0]["spec"]["priority"] == 1000
            assert older.bound() == {}
        finally:
            site.plane.kubectl("delete", "priorityclass", usual)


def test_missing_priority_class_is_named_with_existing_ones(floor: Floor) -> None:
    """The job waits with the names of the existing classes."""
    name = f"{floor.name}-late"
    job = floor.apply("job", priorityClassName=name)
    message = job.until_reason("PriorityClassNotFound")["message"]
    assert repr(name) in message
    assert "system-cluster-critical" in message
    floor.create(_priority_class(name, 10))
    job.until_bound()


def _nodes(jobs: list[Job]) -> list[str]:
    return [node for job in jobs for node in job.bound().values()]


def _reasons(jobs: list[Job]) -> collections.Counter[str]:
    return collections.Counter(job.status().get("reason", "") for job in jobs)


def _priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _stranger(node: str, *, gpus: int) -> dict[str, Any]:
    """A pod that somebody else put on a node."""
    amounts = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "none", "resources": {"limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger"},
        "spec": {"nodeName": node, "containers": [container]},
    }
