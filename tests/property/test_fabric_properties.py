"""Any cables at all: what is found out about them contradicts neither itself nor their order."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fixtures.clos import Cable, wiring
from railwright_topology import fabric, faults, graphs, layers, networks

SWITCHES = st.integers(0, 6).map("switch-{}".format)
UPLINKS = st.tuples(
    st.builds("host-{} mlx5_{}".format, st.integers(0, 8), st.integers(0, 3)), SWITCHES
)
TRUNKS = st.tuples(SWITCHES, SWITCHES).filter(lambda ends: ends[0] != ends[1])


@st.composite
def plugged(draw: st.DrawFn) -> list[Cable]:
    """Adapters with one cable each, and any cables between switches."""
    adapters = draw(st.lists(UPLINKS, unique_by=lambda cable: cable[0], max_size=30))
    return adapters + draw(st.lists(TRUNKS, max_size=12))


@given(plugged(), st.randoms(use_true_random=False))
def test_the_order_of_cables_changes_nothing(cables: list[Cable], random: Random) -> None:
    shuffled = list(cables)
    random.shuffle(shuffled)
    one, other = wiring(cables), wiring(shuffled)
    assert layers.of(one) == layers.of(other)
    assert faults.of(one, layers.of(one)) == faults.of(other, layers.of(other))


@given(plugged())
def test_host_is_in_one_domain_of_a_tier_and_tiers_nest(
    cables: list[Cable],
) -> None:
    found = layers.of(wiring(cables))
    for tier in found.domains:
        hosts = [host for domain in tier for host in domain.hosts]
        assert len(hosts) == len({*hosts})
    for lower, upper in zip(found.domains, found.domains[1:], strict=False):
        for domain in lower:
            assert any({*domain.hosts} <= {*above.hosts} for above in upper)


@given(plugged())
def test_every_sound_plug_is_of_a_rail_or_there_are_none(cables: list[Cable]) -> None:
    found = layers.of(wiring(cables))
    at_the_edge = [up for up in found.ports.sound if found.tiers[up.switch] == 1]
    assert not found.rails or all(found.rail(uplink) is not None for uplink in at_the_edge)


@given(plugged())
def test_the_graph_has_every_host_and_every_cable(cables: list[Cable]) -> None:
    network = networks.of(wiring(cables))
    graph = graphs.of(fabric.of(network.source_report.nodes, [network]))
    hosts = {name for name, kind in graph.nodes(data="kind") if kind == "host"}
    assert hosts == {one.partition(" ")[0] for one, _ in cables if " " in one}
    assert sum(count for _, _, count in graph.edges(data="cables")) == len(cables)


@given(plugged())
def test_hosts_share_a_level_as_they_share_domains_of_a_tier(
    cables: list[Cable],
) -> None:
    network = networks.of(wiring(cables))
    source_report = network.source_report
    for tier, domains in zip(source_report.tiers, network.layers.domains, strict=True):
        together = {domain.hosts for domain in domains}
        called: dict[str, list[str]] = {}
        for host, name in tier.items():
            called.setdefault(name, []).append(host)
        assert {frozenset(hosts) for hosts in called.values()} == set(map(frozenset, together))
