"""Accelerators in partitions, as AMD's driver shows them, are read as the accelerators."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import machine_files, machines
from fixtures.examples import examples
from fixtures.machines import Machine
from railwright_topology.sources import kfd

MACHINES = st.builds(machines.planted, st.randoms(use_true_random=False))

Nodes = dict[str, dict[str, str]]


def stated(text: str, word: str) -> int:
    found = re.search(rf"^{word} (\d+)$", text, re.MULTILINE)
    assert found
    return int(found[1])


def link(end: int, far: int, megabytes: int) -> str:
    return f"type 11\nnode_from {end}\nnode_to {far}\nmax_bandwidth {megabytes}\n"


def partitions(nodes: Nodes, count: int, shift: int) -> Nodes:
    """Each accelerator as so many nodes, with a link between each two of one or of two that are
    linked; ``shift`` is where the number of a partition stands."""
    split: Nodes = {}
    for node, files in nodes.items():
        if files["gpu_id"] == "0":
            split[node] = files
            continue
        links = [text for text in files.values() if text.startswith("type 11")]
        for number in range(count):
            own = 8 * int(node) + number
            place = stated(files["properties"], "location_id") | number << shift
            far = [(8 * int(node), 819_200)]
            far += [(8 * stated(text, "node_to"), stated(text, "max_bandwidth")) for text in links]
            ends = [(first + each, speed) for first, speed in far for each in range(count)]
            split[str(own)] = {
                "gpu_id": str(40_000 + own),
                "properties": f"location_id {place}\ndomain 0\n",
                **{
                    f"io_links/{at}/properties": link(own, end, speed)
                    for at, (end, speed) in enumerate(ends)
                    if end != own
                },
            }
    return split


@pytest.mark.parametrize("shift", [0, 28])
@given(MACHINES, st.integers(2, 8))
@settings(max_examples=examples(15), deadline=None)
def test_partitions_are_read_as_accelerators(shift: int, machine: Machine, count: int) -> None:
    nodes = machine_files.kfd(machine)
    assert kfd.parse(partitions(nodes, count, shift)) == kfd.parse(nodes)


@given(MACHINES, st.integers(2, 8), st.sampled_from([0, 28]), st.data())
@settings(max_examples=examples(15), deadline=None)
def test_later_partition_may_be_lost(
    machine: Machine, count: int, shift: int, data: st.DataObject
) -> None:
    nodes = machine_files.kfd(machine)
    split = partitions(nodes, count, shift)
    if lost := [node for node in split if int(node) >= 16 and int(node) % 8]:
        del split[data.draw(st.sampled_from(lost))]
    assert kfd.parse(split) == kfd.parse(nodes)
