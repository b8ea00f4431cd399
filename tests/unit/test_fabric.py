"""The merged sources: levels, places, and the names of nodes in the cluster."""

from __future__ import annotations

import pytest

from fixtures.clos import Clos, wiring
from railwright_topology import fabric, networks
from railwright_topology.fabric import Fabric, Facts
from railwright_topology.interconnect import UNKNOWN
from railwright_topology.links import Links
from railwright_topology.parts import HardwareReports
from railwright_topology.source_reports import SCALE_UP, Provenance, SourceReport
from railwright_topology.sources import labels

CLOS = Clos(blocks=2, groups=2, hosts=4, rails=4, leaves=2, spines=2)
HOSTS = [host for block in range(2) for group in range(2) for host in CLOS.group(block, group)]
NETWORK = networks.of(wiring(list(CLOS.cables())))
BLOCK, RACK = labels.OWN_LEVELS


def of_labels(nodes: dict[str, dict[str, str]]) -> Fabric:
    return fabric.of(nodes.keys(), labels.source_reports(nodes))


def test_levels_run_from_coarsest_and_racks_carry_their_block() -> None:
    """A rack is identified together with its block."""
    found = of_labels(
        {
            "a": {BLOCK: "b1", RACK: "r1"},
            "b": {BLOCK: "b2", RACK: "r1"},
            "c": {BLOCK: "b2"},
            "d": {},
        }
    )
    assert found.levels == (BLOCK, RACK)
    assert dict(found.places) == {
        "a": ("b1", "b1/r1"),
        "b": ("b2", "b2/r1"),
        "c": ("b2", UNKNOWN),
        "d": (UNKNOWN, UNKNOWN),
    }
    assert found.sizes("abcd", 0) == {"b1": 1, "b2": 2}
    assert found.sizes("abcd", 1) == {"b1/r1": 1, "b2/r1": 1}


def test_a_level_that_no_node_is_labelled_with_is_none() -> None:
    assert of_labels({"a": {RACK: "r1"}, "b": {RACK: "r2"}}).levels == (RACK,)
    assert of_labels({"a": {}}).levels == ()
    assert of_labels({}).place("a") == ()


def test_hosts_stand_where_their_cables_put_them() -> None:
    found = fabric.of(HOSTS, [NETWORK])
    assert [len(found.sizes(HOSTS, level)) for level in range(3)] == [1, 2, 4]
    together = {found.places[host] for host in CLOS.group(1, 0)}
    assert together == {("spine-[0-1]", "leaf-1-[0-3]-[0-1]", "tor-1-0-[0-3]")}
    assert found.levels[-1] == f"{NETWORK.wiring.source} tier 1"


def test_domain_counts_nodes_that_can_send_out() -> None:
    assert tuple(dict(each.leaving) for each in fabric.of(HOSTS, [NETWORK]).links) == (
        {},
        {"leaf-0-[0-3]-[0-1]": 4.0, "leaf-1-[0-3]-[0-1]": 4.0},
        {f"tor-{block}-{group}-[0-3]": 2.0 for block in range(2) for group in range(2)},
    )


def test_scale_up_domain_has_oversubscription_of_tier_inside() -> None:
    around = SourceReport(
        "nvl",
        Provenance.IMPORTED,
        scale_up_domains={host: f"i{at // 8}" for at, host in _numbered()},
    )
    inner = SourceReport(
        "nvl",
        Provenance.IMPORTED,
        scale_up_domains={host: f"i{at // 2}" for at, host in _numbered()},
    )
    alone = fabric.of(HOSTS, [NETWORK])
    for scale_up, at in ((around, 2), (inner, 3)):
        found = fabric.of(HOSTS, [NETWORK, scale_up])
        assert found.levels.index(SCALE_UP) == at
        assert found.nearest == (3 if at == 2 else 2)
        links = [*alone.links]
        links.insert(at, Links(alone.links[at].oversubscription if at < 3 else 1.0))
        assert found.links == tuple(links)


def _numbered() -> list[tuple[int, str]]:
    return [*enumerate(HOSTS)]


def test_a_group_that_lost_a_cable_upwards_lets_out_less() -> None:
    cables = [*CLOS.cables()]
    cables.remove(("tor-0-1-2", "leaf-0-2-0"))
    found = fabric.of(HOSTS, [networks.of(wiring(cables))])
    rooms = [found.links[-1].leaving[found.place(host)[-1]] for host in HOSTS[::4]]
    assert rooms == [2.0, 2.0 * 7 / 8, 2.0, 2.0]


def test_labels_equal_to_cables_change_nothing() -> None:
    group = {host: at // 4 for at, host in enumerate(HOSTS)}
    reported = {host: {RACK: f"r{at}"} for host, at in group.items()}
    same = fabric.of(HOSTS, [*labels.source_reports(reported), NETWORK])
    assert same.places == fabric.of(HOSTS, [NETWORK]).places
    assert same.merged_topology.conflicts == ()
    reported[HOSTS[0]] = {RACK: "r3"}
    odd = fabric.of(HOSTS, [NETWORK, *labels.source_reports(reported)])
    assert odd.places == same.places
    assert [conflict.node for conflict in odd.merged_topology.conflicts] == [HOSTS[0]]


@pytest.mark.parametrize(
    ("node", "host"), [("gpu-1.example.com", "gpu-1"), ("gpu-1", "gpu-1.fabric.local")]
)
def test_a_node_is_known_by_its_first_name_where_no_other_has_it(node: str, host: str) -> None:
    source = SourceReport("x", Provenance.SEEN, ({host: "t1", "other": "t1"},))
    found = fabric.of([node, "other"], [source])
    assert found.place(node) == ("t1",)
    assert found.source_reports[0].strange == ()


@pytest.mark.parametrize(
    ("node", "host"), [("10.0.0.200", "10.0.0.16"), ("gpu-1.site-b.net", "gpu-1.site-a.net")]
)
def test_an_address_and_a_node_of_another_site_are_somebody_else(node: str, host: str) -> None:
    found = fabric.of([node], [SourceReport("x", Provenance.SEEN, ({host: "t1"},))])
    assert found.places == {node: ()}


def test_one_name_in_two_places_is_two_racks() -> None:
    plan = SourceReport("plan", Provenance.DECLARED, ({"a": "b/r0"}, {"a": "b"}))
    conf = SourceReport("conf", Provenance.IMPORTED, ({"x": "r0", "y": "r0"}, {"x": "b", "y": "b"}))
    found = fabric.of(["a", "x", "y"], [plan, conf])
    assert len(found.sizes("axy", 1)) == 2
    assert found.places["x"] == found.places["y"] != found.places["a"]


def test_sources_of_one_name_are_numbered_whatever_their_order() -> None:
    one = SourceReport("topology.conf", Provenance.IMPORTED, ({"a": "r0", "b": "r0"},))
    other = SourceReport("topology.conf", Provenance.IMPORTED, ({"a": "r0", "b": "r1"},))
    found = fabric.of("ab", [one, other])
    assert found == fabric.of("ab", [other, one])
    assert [each.source for each in found.source_reports] == ["topology.conf", "topology.conf (2)"]


def test_hosts_without_node_and_shared_names_are_reported() -> None:
    tiers = ({"gpu-1.a": "t1", "gpu-1.b": "t2", "login": "t1", "gpu-2": "t2"},)
    found = fabric.of(["gpu-1.c", "gpu-2"], [SourceReport("x", Provenance.SEEN, tiers)])
    assert dict(found.places) == {"gpu-1.c": (UNKNOWN,), "gpu-2": ("t2",)}
    (stated,) = found.source_reports[0].strange
    assert stated == "no node of the cluster: 3 of 4, the first is gpu-1.a"


def test_the_order_of_sources_and_nodes_changes_nothing() -> None:
    nodes = {host: {RACK: f"r{at // 4}"} for at, host in enumerate(HOSTS)}
    reported: list[Facts] = [*labels.source_reports(nodes), NETWORK]
    assert fabric.of(HOSTS, reported) == fabric.of(HOSTS[::-1], reported[::-1])


def test_sources_of_facts_about_a_node_are_named() -> None:
    """Those of its cables, its hardware and its benchmarks, by the node's name in the cluster."""
    first, second, *_ = HOSTS
    nodes = [f"{first}.example.com", second, "measured", "bare"]
    agents = HardwareReports("agents", {first: ()}, {"measured": ()})
    cables = NETWORK.wiring.source
    assert fabric.of(nodes, [NETWORK, agents]).fact_sources == {
        f"{first}.example.com": tuple(sorted(("agents", cables))),
        second: (cables,),
        "measured": ("agents",),
    }
