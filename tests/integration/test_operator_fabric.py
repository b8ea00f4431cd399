"""The network as a real cluster tells of it: labels of any family, files, conflicts, mistakes.

It runs an operator of its own: what is said of the network holds for all of its nodes.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fixtures import command_line
from fixtures.clos import Clos
from integration import operator_site
from integration.operator_site import FABRIC, Floor, Json, Site
from railwright_api import names
from railwright_kube.paths import NODES
from railwright_testbed import waiting
from railwright_testbed.service_process import NAMESPACE

AWS = "topology.k8s.aws/network-node-layer-"
FAMILIES = {
    "railwright": (names.LABEL_BLOCK, names.LABEL_RACK),
    "topograph": ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0"),
    "topograph before 1.0": (
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/leaf",
    ),
    "aws": (f"{AWS}2", f"{AWS}3"),
    "gcp": ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    "oci host": ("oci.oraclecloud.com/host.network_block_id", "oci.oraclecloud.com/host.rack_id"),
    "cloud.provider.com": ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    "configured": ("example.com/row", "example.com/shelf"),
}


@pytest.fixture(scope="module")
def ground() -> Iterator[Site]:
    with operator_site.opened() as site:
        yield site


@pytest.fixture
def bare(ground: Site) -> Iterator[Floor]:
    """Sixteen nodes that nobody labelled; what a test says of them goes with it."""
    with operator_site.floor_on(ground, (16,)) as floor:
        for node in floor.nodes:
            _label(ground, node, {names.LABEL_RACK: None})
        yield floor
        floor.clear()
        for node in floor.nodes:
            ground.admin.delete(f"{NODES}/{node}")
        ground.plane.kubectl("-n", NAMESPACE, "delete", "configmap", "site", "--ignore-not-found")
        ground.admin.patch(FABRIC, {"spec": {"levels": []}})
        _until(ground, lambda status: status.get("sources", []) == [], "nothing known")


def _label(site: Site, node: str, labels: dict[str, str | None]) -> None:
    site.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


def _give(site: Site, **files: str | bytes) -> None:
    """Put files into the ConfigMap ``site``; underscores in their names are dots."""
    data = {name.replace("_", "."): text for name, text in files.items() if isinstance(text, str)}
    packed = {
        name.replace("_", "."): base64.b64encode(content).decode()
        for name, content in files.items()
        if isinstance(content, bytes)
    }
    labels = {names.LABEL_FABRIC: names.SINGLETON}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "site", "namespace": NAMESPACE, "labels": labels},
        "data": data,
        "binaryData": packed,
    }
    site.plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def _until(site: Site, holds: Callable[[Json], bool], what: str) -> Json:
    """The fabric's status once this holds of it."""

    def status() -> Json:
        found: Json = site.admin.get(FABRIC).get("status", {})
        return found

    waiting.until(lambda: holds(status()), what, deadline_s=20, evidence=lambda: str(status()))
    return status()


def _until_told(site: Site, source: str, summary: str) -> Json:
    """The status once all comes from this one source."""

    def holds(status: Json) -> bool:
        sources = [each["source"] for each in status.get("sources", [])]
        return sources == [source] and status["summary"] == summary

    return _until(site, holds, f"{summary} by {source}")


def _conf(*racks: list[str]) -> str:
    leaves = (f"SwitchName=leaf-{at} Nodes={','.join(its)}\n" for at, its in enumerate(racks))
    return "".join(leaves)


def test_job_is_placed_equally_by_each_family_of_labels(ground: Site, bare: Floor) -> None:
    racks = [bare.nodes[0::2], bare.nodes[1::2]]
    before: dict[str, str | None] = {}
    for number, (family, keys) in enumerate(FAMILIES.items()):
        if family == "configured":
            ground.admin.patch(FABRIC, {"spec": {"levels": list(keys)}})
        for at, nodes in enumerate(racks):
            for node in nodes:
                _label(ground, node, before | dict(zip(keys, (f"b{at}", "same"), strict=True)))
        before = dict.fromkeys(keys)
        _until_told(ground, f"{family} labels", "2 > 2")
        job = bare.apply(f"gang-{number}", nodes=8, gpus=1)
        assert job.until_nodes() in racks, family
        assert job.status()["racks"] == 1, family


def test_topology_file_places_nodes_and_reloads_in_seconds(ground: Site, bare: Floor) -> None:
    """A ConfigMap gives the domains of nodes; a changed file counts within seconds."""
    halves = [bare.nodes[0::2], bare.nodes[1::2]]
    _give(ground, topology_conf=_conf(*halves))
    status = _until(ground, lambda status: status.get("summary") == "2", "two leaves")
    (source,) = status["sources"]
    written = datetime.fromisoformat(source.pop("time"))
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=5)
    assert [source] == [
        {
            "source": "site/topology.conf",
            "provenance": "Imported",
            "nodes": 16,
            "tiers": ["site/topology.conf tier 1"],
            "remarks": [],
        }
    ]
    assert bare.apply("first", nodes=8).until_nodes() in halves
    quarters = [bare.nodes[at : at + 4] for at in (0, 4, 8, 12)]
    _give(ground, topology_conf=_conf(*quarters))
    _until(ground, lambda status: status.get("summary") == "4", "four leaves")
    bare.clear()
    assert bare.apply("second", nodes=4).until_nodes() in quarters


def test_node_below_two_switches_is_a_remark_on_its_file(ground: Site, bare: Floor) -> None:
    lost, *others = bare.nodes
    _give(ground, topology_conf=_conf(bare.nodes[0::2], [*bare.nodes[1::2], lost]))
    status = _until(ground, lambda status: status.get("summary") == "2", "two leaves")
    (source,) = status["sources"]
    assert source["nodes"] == len(others)
    rule = f"line 2: node {lost!r} is in both 'leaf-0' and 'leaf-1': it is left out"
    assert source["remarks"] == [rule]


def test_unreadable_file_keeps_the_old_fabric(ground: Site, bare: Floor) -> None:
    halves = [bare.nodes[0::2], bare.nodes[1::2]]
    _give(ground, topology_conf=_conf(*halves))
    before = _until(ground, lambda status: status.get("summary") == "2", "two leaves")
    _give(ground, topology_conf="no topology\nat all\n")
    status = _until(ground, lambda status: bool(status.get("problems")), "a problem")
    (problem,) = status["problems"]
    assert problem["key"] == "site/topology.conf"
    assert "topology.conf, line 1: 'no topology' is no Key=value" in problem["message"]
    assert "its last valid content stays" in problem["message"]
    assert status["domains"] == before["domains"]
    assert bare.apply("gang", nodes=8).until_nodes() in halves


def test_source_conflicts_name_node_and_both_sides(ground: Site, bare: Floor) -> None:
    for at, node in enumerate(bare.nodes):
        _label(ground, node, {f"{AWS}3": f"nn-{at // 4}"})
    racks = [bare.nodes[at : at + 4] for at in (0, 4, 8, 12)]
    racks[0][3], racks[1][0] = racks[1][0], racks[0][3]
    plan = "version: 1\ntiers: [rack]\ndomains:\n" + "".join(
        f"  r{at}: {','.join(nodes)}\n" for at, nodes in enumerate(racks)
    )
    _give(ground, plan_yaml=plan)
    status = _until(ground, lambda status: status.get("conflictCount") == 2, "two conflicts")
    assert {each["node"] for each in status["conflicts"]} == {bare.nodes[3], bare.nodes[4]}
    (first, *_) = status["conflicts"]
    assert first["source"] == "aws labels"
    assert first["message"] == "aws labels has it in nn-0, which is r0; r1 counts, by site/plan"
    assert bare.apply("gang", nodes=4).until_nodes() in map(sorted, racks)
    reported = command_line.printed(
        ground.plane.kubeconfig, "topology", "--job", f"{bare.name}/gang"
    )
    assert "16 nodes\n  rack: 4 domains of 4 nodes (site/plan)\n" in reported
    assert "3 findings" in reported
    assert "- the Fabric has 2 conflicts: kubectl describe fabric default\n" in reported
    assert f"- {first['node']}: {first['message']} (rack)" in reported
    assert ", node ranks [0-3]\n" in reported
    picture = command_line.printed(
        ground.plane.kubeconfig, "topology", "--job", f"{bare.name}/gang", "-o", "svg"
    )
    assert picture.count(", node rank ") == 4
    assert f"{bare.name}/gang on 4 of 16 nodes" in picture
    # Two nodes, and what it means.
    assert command_line.topology(ground.plane, "-o", "svg").count('class="conflict"') == 3


def test_cables_show_rails_and_faults_and_come_compressed(ground: Site, bare: Floor) -> None:
    clos = Clos(blocks=2, groups=1, hosts=8, rails=2, leaves=1, spines=1)
    hosts = {f"node-{at:04d}": node for at, node in enumerate(bare.nodes)}
    cables = [
        (" ".join((hosts[one.partition(" ")[0]], one.partition(" ")[2])), other)
        if " " in one
        else (one, other)
        for one, other in clos.cables()
    ]
    cables.remove((f"{bare.nodes[9]} mlx5_1", "tor-1-0-1"))
    _give(ground, ibnetdiscover_txt_gz=gzip.compress(_printed(cables).encode()))
    status = _until(ground, lambda status: bool(status.get("networks")), "a network")
    (network,) = status["networks"]
    assert (network["hosts"], network["rails"], network["faultCount"]) == (16, 2, 1)
    assert network["faults"][0].startswith(f"{bare.nodes[9]} has no cable at mlx5_1")
    assert network["adapters"] == [{"speed": "400 Gb/s", "count": 31}]
    groups = [bare.nodes[:8], bare.nodes[8:]]
    assert bare.apply("gang", nodes=8).until_nodes() in groups
    bare.clear()
    why = "rail 1 is miscabled at mlx5_1: it has no cable"
    odd = {"node": bare.nodes[9], "rail": 1, "message": why}
    assert status["rails"] == {"nodes": 16, "aligned": 15, "miscabled": [odd]}
    reported = command_line.topology(ground.plane)
    assert f"  rails: aligned on 15 of 16 nodes\n    {bare.nodes[9]}: {why}\n" in reported
    topology = {"rails": "Aligned"}
    all_of_them = bare.apply("all", nodes=16, topology=topology)
    all_of_them.until_said("at most 15 such nodes together: replicas <= 15; miscabled: rail 1 on 1")
    topology["required"] = "nearest"
    jobs = (bare.apply(name, nodes=7, topology=topology) for name in ("one", "other"))
    bound = [job.until_nodes() for job in jobs]
    assert sorted(bound)[1] == [node for node in bare.nodes[8:] if node != bare.nodes[9]]


def test_scale_up_domains_are_a_tier_that_jobs_can_name(ground: Site, bare: Floor) -> None:
    """Two racks of two scale-up domains each, but for the last node."""
    clique = "nvidia.com/gpu.clique"
    for at, node in enumerate(bare.nodes):
        labels: dict[str, str | None] = {names.LABEL_RACK: f"r{at // 8}"}
        if at < 15:
            labels[clique] = f"6f4a-07.{at // 4}"
        _label(ground, node, labels)

    def holds(status: Json) -> bool:
        # There are as many before the last labels were read.
        smallest = status.get("scaleUpDomains", {}).get("smallest")
        return (status.get("summary"), smallest) == ("2; 4 scale-up domains", 3)

    status = _until(ground, holds, "scale-up domains")
    assert [each["level"] for each in status["domains"]] == [names.LABEL_RACK, "scale-up-domain"]
    scale_up = [bare.nodes[at : at + 4] for at in (0, 4, 8)]
    job = bare.apply("held", nodes=4, topology={"required": "scale-up-domain"})
    held = job.until_nodes()
    assert held in scale_up
    assert job.status()["racks"] == 1
    segment = {"tier": "scale-up-domain", "nodes": 4}
    runs = bare.apply("runs", nodes=8, topology={"segments": [segment]}).until_nodes()
    assert sorted([held, runs[:4], runs[4:]]) == scale_up
    more = bare.apply("more", nodes=4, topology={"required": "scale-up-domain"})
    more.until_said(
        "all in one domain of scale-up-domain; at most 3 available together, 4 if all were free"
    )
    assert bare.apply("last", nodes=4).until_nodes() == bare.nodes[12:]


def _printed(cables: list[tuple[str, str]]) -> str:
    """What ibnetdiscover prints of these cables, as far as it is read."""
    ports: dict[str, list[tuple[str, str]]] = {}
    for one, other in cables:
        ports.setdefault(other, []).append(("H-" if " " in one else "S-", one))
        ports.setdefault(one, []).append(("S-", other))
    lines = []
    for name, its in ports.items():
        kind, letter = ("Ca", "H") if " " in name else ("Switch", "S")
        lines.append(f'{kind} {len(its)} "{letter}-{_id(name)}" # "{name}"')
        lines += [
            f'[{at}] "{far}{_id(to)}"[1] # "{to}" lid 1 4xNDR'
            for at, (far, to) in enumerate(its, 1)
        ]
    return "\n".join(lines)


def _id(name: str) -> str:
    return name.encode().hex()
