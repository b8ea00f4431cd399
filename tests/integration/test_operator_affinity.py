"""Jobs with a node affinity land on the nodes that match it, and stay when labels change."""

from __future__ import annotations

from typing import Any

from fixtures.training import Training
from integration.operator_site import COMMAND, FLOOR_LABEL, Floor, Job, Site
from railwright_api import names
from railwright_conversion import node_affinities

TIER = "example.com/tier"
GOLD = {"matchExpressions": [{"key": TIER, "operator": "In", "values": ["gold"]}]}


def apply(floor: Floor, name: str, *selector_terms: dict[str, Any], nodes: int = 2) -> Job:
    """A job for the nodes of this floor that match one of the terms."""
    manifest = Training(name, COMMAND, nodes=nodes, gpus=8).manifest(floor.name)
    required = {node_affinities.REQUIRED: {"nodeSelectorTerms": [*selector_terms]}}
    pod = manifest["spec"]["roles"][0]["template"]["spec"]
    pod |= {"nodeSelector": {FLOOR_LABEL: floor.name}, "affinity": {"nodeAffinity": required}}
    floor.site.admin.post(floor.path(names.TRAINING_JOBS), manifest)
    return Job(floor.site.plane, floor.site.admin, floor.name, name)


def test_job_lands_on_nodes_that_match_its_affinity(site: Site, floor: Floor) -> None:
    """Of two terms, and with a selector: the floor's own."""
    first, second, third, fourth = floor.nodes
    site.plane.kubectl("label", "node", second, f"{TIER}=7")
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [fourth]}]}
    numbered = {"matchExpressions": [{"key": TIER, "operator": "Gt", "values": ["6"]}]}
    job = apply(floor, "job", named, numbered)
    assert job.until_nodes() == [second, fourth]
    others = {"matchExpressions": [{"key": TIER, "operator": "DoesNotExist"}]}
    assert apply(floor, "others", others).until_nodes() == [first, third]
    reason = apply(floor, "none", named, numbered, nodes=3).until_reason("NeverFits")
    assert reason["message"].endswith("; 2 nodes not counted for its node affinity")


def test_running_pods_stay_when_labels_change(site: Site, floor: Floor) -> None:
    """The next attempt obeys the labels as they are then."""
    first, second, third, _ = floor.nodes
    site.plane.kubectl("label", "node", first, second, f"{TIER}=gold")
    job = apply(floor, "job", GOLD)
    assert job.until_nodes() == [first, second]
    site.plane.kubectl("label", "node", second, f"{TIER}-")
    other = apply(floor, "other", GOLD)
    assert "3 nodes not counted" in other.until_reason("NeverFits")["message"]
    other.delete()
    assert (job.status()["attempt"], len(job.bound())) == (1, 2)
    site.kwok.fail_pod(floor.name, "job-worker-0-1", exit_code=1)
    assert "3 nodes not counted" in job.until_reason("NeverFits")["message"]
    site.plane.kubectl("label", "node", third, f"{TIER}=gold")
    assert job.until_nodes(2) == [first, third]
