"""What controllers that start again publish before agents have reported."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import office
from fixtures.clos import Cable, wiring
from fixtures.examples import examples
from property.test_fabric_properties import plugged
from railwright_controllers.report import kept
from railwright_topology import fabric, networks
from railwright_topology.source_reports import Provenance, SourceReport

HOSTS = [f"host-{number}" for number in range(9)]
RACKS = st.dictionaries(st.sampled_from(HOSTS), st.integers(0, 4))


@st.composite
def labelled(draw: st.DrawFn) -> SourceReport:
    """Labels of racks and blocks."""
    racks = draw(RACKS)
    blocks = draw(st.lists(st.integers(0, 2), min_size=5, max_size=5))
    tiers = (
        {host: f"rack-{rack}" for host, rack in racks.items()},
        {host: f"block-{blocks[rack]}" for host, rack in racks.items()},
    )
    return SourceReport("labels", Provenance.DECLARED, tiers, names=("rack", "block"))


@settings(max_examples=examples(60))
@given(plugged(), labelled(), st.lists(st.sampled_from(HOSTS), unique=True))
def test_front_end_cables_change_nothing_before_agents_report(
    cables: list[Cable], labels: SourceReport, stored: list[str]
) -> None:
    """The process before knew from its agents which adapters are those of storage."""
    before = fabric.of(HOSTS, [networks.of(wiring(cables)), labels])
    published = office.published_status(before)
    front_end = [(f"{host} storage", "switch-storage") for host in stored]
    after = fabric.of(HOSTS, [networks.of(wiring(cables + front_end)), labels])
    assert kept.topology(published, after) == published["topology"]
