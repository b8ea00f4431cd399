"""A Fabric with as much of everything as there can be fits an object of 1 MiB."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fixtures import schemas
from fixtures.clos import wiring
from fixtures.large_interconnects import large
from fixtures.office import FABRIC, Office, fabric
from railwright_api.fabric import Fabric as FabricObject
from railwright_api.schema import LABEL_KEY_LENGTH_MAX
from railwright_controllers.discovery import FabricState
from railwright_controllers.file_reads import FileRead
from railwright_testbed import structural
from railwright_topology import networks
from railwright_topology.fabric import Fabric
from railwright_topology.hardware_inventory import HardwareConflict, HardwareInventory
from railwright_topology.interconnect import Interconnect
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.networks import Network
from railwright_topology.parts import Kind, Part
from railwright_topology.slow_devices import Slow
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources.formats import File
from railwright_topology.topology_merge import LocationConflict, MergedTier, MergedTopology

OBJECT_BYTES_MAX = 1 << 20
MANY = 40
"""More than any list of the status has."""
SCHEMA = structural.structural_schema(FabricObject)["properties"]["status"]
NETWORK = networks.of(wiring([("a x", "leaf"), ("b x", "leaf")]))


def named(at: int) -> str:
    """One of many long names."""
    return f"{at:03d}".rjust(LABEL_KEY_LENGTH_MAX, "n")


def sentences(letter: str) -> tuple[str, ...]:
    return tuple(f"{at} {letter * 2000}" for at in range(MANY))


def inventory(at: int, letter: str) -> HardwareInventory:
    """Hardware of a kind of its own."""
    conflicts = (
        HardwareConflict(each, named(at), named(at), each, each, each) for each in sentences(letter)
    )
    return HardwareInventory(
        parts=(Part("gpu", Kind.ACCELERATOR, model=f"{at} {letter * 2000}"),),
        unknown=sentences(letter),
        conflicts=tuple(conflicts),
        remarks=sentences(letter),
    )


def source(at: int, letter: str) -> SourceReport:
    names = tuple(map(named, range(8)))
    strange = sentences(letter)
    return SourceReport(
        named(at), Provenance.DECLARED, tiers=({},) * 8, names=names, strange=strange
    )


def network(at: int, letter: str) -> Network:
    cables = replace(NETWORK.wiring, source=named(at))
    return replace(NETWORK, wiring=cables, faults=sentences(letter))


def merged(found: Interconnect, letter: str) -> MergedTopology:
    tiers = [
        MergedTier(level, named(at), {node: its[at] for node, its in found.places.items()}, {})
        for at, level in enumerate(found.levels)
    ]
    first = [*found.places][:MANY]
    conflicts = (LocationConflict(node, *(letter * 2000 for _ in range(6))) for node in first)
    return MergedTopology(tuple(tiers[::-1]), tiers[0], tuple(conflicts), ())


def crowded(found: Interconnect, letter: str) -> Fabric:
    """A fabric of these nodes in which everything is as much and as long as it can be."""
    first = [*found.places][:MANY]
    texts = dict(zip(first, sentences(letter), strict=True))
    return Fabric(
        found.levels,
        found.places,
        found.links,
        rails={node: Rails((0,), (MiscabledRail(0, its, its),)) for node, its in texts.items()},
        merged_topology=merged(found, letter),
        source_reports=tuple(source(at, letter) for at in range(MANY)),
        networks=tuple(network(at, letter) for at in range(MANY)),
        inventories={node: inventory(at, letter) for at, node in enumerate(first)},
        remarks=tuple(f"{named(at)}: {its}" for at, its in enumerate(sentences(letter))),
        slow=tuple(Slow(node, its, its, "flop_per_s", 1, 2) for node, its in texts.items()),
    )


@pytest.mark.parametrize(("nodes", "letter"), [(2_048, "x"), *((5_000, each) for each in 'x<"')])
async def test_large_fabric_with_everything_fits_an_object(nodes: int, letter: str) -> None:
    """``<`` is stored with six bytes: then only the counts of conflicts are left. The topology is
    always whole."""
    office = Office()
    office.add(fabric(*map(named, range(8)), version=2))
    found = crowded(large(nodes, 8), letter)
    for node in [*found.places][:MANY]:
        office.node(node, unread=dict.fromkeys(map(named, range(9)), letter * 2000))
    read = FileRead(File("site", named(0), ""), problem=letter * 2000)
    office.discovery.is_assembled, office.discovery._began_s = True, 0.0
    office.discovery.found = FabricState(found, (read,) * MANY)
    office.unsurveyed = sentences(letter)[:3]
    assert await office.reporter.report()
    status, size = office.status, stored_bytes(office.store.objects[FABRIC])
    assert next(schemas.refusals(SCHEMA, status), None) is None
    assert size <= OBJECT_BYTES_MAX - MANAGED_BYTES
    assert [each["level"] for each in status["topology"]["levels"]] == [*found.levels]
    assert (len(status["sources"]), len(status["domains"])) == (32, 3)
    assert status["conflictCount"] > len(status["conflicts"])
    assert (len(status["conflicts"]) > 0) is (letter != "<")


MANAGED_BYTES = 10_000
"""What the API server adds: who wrote which field."""


def stored_bytes(raw: object) -> int:
    """The size of it as the API server writes JSON: Go escapes what HTML does."""
    text = json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
    for each in "<>&":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return len(text.encode())
