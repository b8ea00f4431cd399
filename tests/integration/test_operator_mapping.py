"""Jobs that say what they do, and where they have to stand: the running operator lays out their
ranks by it, and says on the Placement what that is good for."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import command_line
from integration import operator_site
from integration.operator_site import Floor, Site
from railwright import profile, strides
from railwright.profile import Calls, Operation, Recorded
from railwright_api import names
from railwright_api.placement import Placement
from railwright_conversion.machines import PRODUCT
from railwright_kube.paths import NODES
from railwright_testbed.api_client import ApiError

STAGES_FIRST: dict[str, Any] = {
    "transformer": {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "feedForward": 16384,
        "vocabulary": 51200,
    },
    "parallelism": {"tensor": 8, "pipeline": 4, "rankOrder": "MegatronPipelineFirst"},
    "training": {"sequence": 2048, "globalBatch": 16},
}
"""Two replicas of four nodes each, one after the other."""


def placement(floor: Floor, name: str) -> Placement:
    found = floor.site.admin.get(f"{floor.path(names.PLACEMENTS)}/{name}-1")
    return Placement.model_validate(found)


@pytest.mark.parametrize("product", ["NVIDIA-A100-SXM4-80GB", None])
def test_ranks_with_most_traffic_share_a_rack(site: Site, product: str | None) -> None:
    """The mapping puts ranks with the most traffic between them into one rack."""
    with operator_site.floor_on(site, (4, 4)) as floor:
        for node in floor.nodes:
            site.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": {PRODUCT: product}}})
        site.until_nodes_heard()
        job = floor.apply("laid-out", nodes=8, processes=8, workload=STAGES_FIRST)
        nodes = job.until_nodes()
        racks = {name: at // 4 for at, name in enumerate(floor.nodes)}
        where = [racks[name] for name in nodes]
        # Node rank r + 4 has the other replica's ranks of the same stage.
        assert where[:4] == where[4:]
        assert {*where} == {0, 1}
        assert job.bound() == dict(enumerate(nodes))
        found = placement(floor, "laid-out").spec
        assert list(found.nodes) == nodes
        assert found.mapping is not None
        assert found.mapping.communication == "Derived"
        rack = found.mapping.crossing[-1]
        assert rack.level == names.LABEL_RACK
        assert 0 < rack.bytes < rack.network_order_bytes
        predicted = found.mapping.predicted
        assert (predicted is not None) is (product is not None)
        if predicted is not None:
            assert predicted.machines == ("DGX A100",)
            assert 0 < float(predicted.step_seconds) <= float(predicted.network_order_seconds)
            listed = site.plane.kubectl("-n", floor.name, "get", "placements")
            assert f"laid-out-1   1         {predicted.step_seconds} " in listed
        _is_drawn(site, floor)


def _is_drawn(site: Site, floor: Floor) -> None:
    """Each of its nodes once, and a line up from either rack."""
    job = f"{floor.name}/laid-out"
    reported = command_line.topology(site.plane, "--job", job)
    assert f"job {job}: 64 ranks, 8 a node: tensor 8 × pipeline 4 × data 2\n" in reported
    picture = command_line.topology(site.plane, "--job", job, "-o", "svg")
    for node in floor.nodes:
        assert picture.count(f"<title>{node}, node rank ") == 1
    assert picture.count('class="up"') == 2 + 1  # And what it means.


def _recorded(device: str) -> str:
    """Stages send each other far more than is derived."""
    calls = [
        (Calls(strides.folded(range(64)), Operation.SEND, "bfloat16", 1, 1 << 30, to=rank + 8),)
        if rank % 32 < 24
        else ()
        for rank in range(64)
    ]
    parts = (
        Recorded(rank, 64, steps=1, step_s=1.0, compute_s=None, calls=its, device=device)
        for rank, its in enumerate(calls)
    )
    return profile.encoded(profile.merged(parts)).decode()


def test_pre_run_profile_is_kept_and_maps_the_job(site: Site) -> None:
    """Each replica gets a rack."""
    with operator_site.floor_on(site, (4, 4)) as floor:
        seen = _recorded("")
        workload = STAGES_FIRST | {"profile": seen}
        nodes = floor.apply("seen", nodes=8, processes=8, workload=workload).until_nodes()
        racks = {name: at // 4 for at, name in enumerate(floor.nodes)}
        where = [racks[name] for name in nodes]
        assert (len({*where[:4]}), len({*where[4:]})) == (1, 1)
        mapping = placement(floor, "seen").spec.mapping
        assert mapping is not None
        assert (mapping.communication, mapping.crossing[-1].bytes) == ("Measured", 0)


@pytest.mark.parametrize("taken_on", ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"])
def test_profile_of_other_devices_is_set_aside_with_reason(site: Site, taken_on: str) -> None:
    """The status states the device kinds on which the profile was not recorded."""
    product = "NVIDIA-H100-80GB-HBM3"
    with operator_site.floor_on(site, (4, 4)) as floor:
        for node in floor.nodes:
            site.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": {PRODUCT: product}}})
        site.until_nodes_heard()
        workload = STAGES_FIRST | {"profile": _recorded(taken_on)}
        job = floor.apply("seen", nodes=8, processes=8, workload=workload)
        job.until_bound()
        mapping = placement(floor, "seen").spec.mapping
        assert mapping is not None
        holds = "H100" in taken_on
        assert mapping.communication == ("Measured" if holds else "Derived")
        assert mapping.other_devices == (() if holds else (product,))
        conditions = {each["type"]: each for each in job.status()["conditions"]}
        applied = conditions["ProfileApplied"]
        assert (applied["status"], applied["reason"]) == (
            ("True", "DevicesMatch") if holds else ("False", "OtherDevices")
        )


def test_job_without_workload_is_placed_in_network_order(site: Site) -> None:
    with operator_site.floor_on(site, (2, 2)) as floor:
        assert floor.apply("silent", nodes=4).until_nodes() == floor.nodes
        assert placement(floor, "silent").spec.mapping is None


def test_job_meets_its_constraints_or_waits_with_reason(site: Site) -> None:
    with operator_site.floor_on(site, (2, 3)) as floor:
        apart = floor.apply(
            "apart", nodes=2, topology={"spread": [{"tier": "nearest", "nodes": 1}]}
        )
        first, second = apart.until_nodes()
        assert {first in floor.nodes[:2], second in floor.nodes[:2]} == {True, False}
        tight = floor.apply("tight", nodes=3, topology={"required": "nearest"})
        tight.until_said(
            "all in one domain of nearest; at most 2 available together, 3 if all were free"
        )
        wide = floor.apply("wide", nodes=4, topology={"required": "nearest"})
        wide.until_said("at most 3 such nodes together: replicas <= 3")
        lost = floor.apply("lost", nodes=1, topology={"preferred": "scale-up-domain"})
        assert lost.until_reason("TierNotFound")
        apart.delete()
        assert tight.until_nodes() == floor.nodes[2:]


def test_topology_changes_only_while_suspended(floor: Floor) -> None:
    """The API server refuses a change of `spec.topology` of a job that is not suspended."""
    job = floor.apply("moved", nodes=2, topology={"spread": [{"tier": "nearest", "nodes": 1}]})
    job.until_bound()
    with pytest.raises(ApiError, match="topology cannot change while the job is not suspended"):
        floor.site.admin.patch(
            f"{floor.path(names.TRAINING_JOBS)}/moved", {"spec": {"topology": None}}
        )
