"""Real traffic between namespaces behind shaped links: what was shaped is measured, the racks are
found by it, and nothing is left of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fixtures import shaped_network
from fixtures.planted_network import adjusted_rand_index
from fixtures.shaped_network import Speeds
from railwright_testbed import processes, state_folder, sweeping, waiting
from railwright_testbed.state_folder import StateFolder
from railwright_topology import fabric
from railwright_topology.sources import formats, labels
from railwright_topology.sources.formats import File

SPEEDS = Speeds(node=120, rack=30, block=30)


OWNER = """
from fixtures import shaped_network
with shaped_network.opened(((1, 1),), shaped_network.Speeds(node=100, rack=100, block=100)) as made:
    print(made.folder.testbed_id, flush=True)
    input()
"""


def test_real_probes_find_racks_uplinks_and_a_false_label() -> None:
    with shaped_network.opened(((3, 3, 4),), SPEEDS) as network, network.listening():
        # One at a time: two that share an uplink would each see half of it.
        text = network.survey("--at-once", "1", "--seconds", "0.15", "--uplinks")
        left = network.folder
    racks = network.tiers[0]
    reported = formats.read(File("", "probes.json", text))
    found = fabric.of(racks, reported)
    near = {node: place[-1] for node, place in found.places.items()}
    assert adjusted_rand_index(racks, near) == 1.0
    # A quarter of a node's worth leaves each rack. Probes that do not begin at once see more of it,
    # on a busy machine twice as much; racks whose nodes all can leave would have 3 or 4.
    bandwidths = found.links[-1].leaving
    assert bandwidths.keys() == {*near.values()}
    assert all(
        0.5 < bandwidth * SPEEDS.node / SPEEDS.rack < 3.0 for bandwidth in bandwidths.values()
    ), bandwidths
    in_rack, across = shaped_network.measured(text)
    assert in_rack["bytes_per_s"] == pytest.approx(SPEEDS.node * 1e6 / 8, rel=0.25)
    assert across["bytes_per_s"] == pytest.approx(SPEEDS.rack * 1e6 / 8, rel=0.25)
    assert in_rack["latency_s"] < 0.05
    false = next(node for node, rack in racks.items() if rack != racks["n00"])
    labelled = {**racks, false: racks["n00"]}
    rack = labels.OWN_LEVELS[-1]
    reported += labels.source_reports({node: {rack: stated} for node, stated in labelled.items()})
    conflicts = fabric.of(racks, reported).merged_topology.conflicts
    assert {(each.node, each.source) for each in conflicts} == {(false, "probes")}
    assert not left.path.exists()
    assert left.testbed_id not in _namespaces()


def test_when_its_owner_is_killed_nothing_is_left_of_it() -> None:
    with _owned() as (owner, folder):
        owner.kill()
    waiting.until(
        lambda: folder.testbed_id not in _namespaces(), "no namespace of it", deadline_s=60
    )


def test_when_its_guardian_is_killed_too_the_next_one_sweeps_it() -> None:
    with _owned() as (owner, folder):
        (guard,) = (
            record
            for record in processes.read_records(folder.records)
            if record.name == sweeping.GUARDIAN
        )
        processes.end(guard)
        owner.kill()
    sweeping.sweep_crashed()
    assert folder.testbed_id not in _namespaces()
    assert not folder.path.exists()


@contextlib.contextmanager
def _owned() -> Iterator[tuple[subprocess.Popen[str], StateFolder]]:
    """A network that another process has opened."""
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        testbed_id = owner.stdout.readline().strip()
        assert testbed_id in _namespaces()
        (folder,) = (each for each in state_folder.every() if each.testbed_id == testbed_id)
        yield owner, folder


def _namespaces() -> str:
    return subprocess.check_output(["ip", "netns", "list"], text=True)
