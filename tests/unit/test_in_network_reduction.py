"""Where switches add up what crosses them (SHARP), on part of the fabric: seen in the cables, told
to the decision, and worth other nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fixtures import job, node
from fixtures.clos import Clos, wiring
from railwright_scheduler.communication import derive
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import DGX_A100
from railwright_scheduler.cost.in_network_reduction import NetworkReduction
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.snapshot import Node, Snapshot
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology import fabric, networks
from railwright_topology.links import Links
from railwright_topology.networks import Network
from railwright_topology.source_reports import Provenance, SourceReport

GPT = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
TWO_STAGES = Workload(
    GPT,
    Parallelism(tensor=8, pipeline=2, data=4),
    Recipe(2048, 1, 16, framework=Framework.MEGATRON_PIPELINE_FIRST),
)
"""Sums over four nodes of each stage; node ranks 0, 2, 4 and 6 are the first stage's."""

CLOS = Clos(blocks=2, groups=2, hosts=4, rails=2, leaves=2, spines=2)
HOSTS = [host for block in range(2) for group in range(2) for host in CLOS.group(block, group)]


def adding(*names: str) -> Network:
    """The network of which the switches with these beginnings add up."""
    plain = wiring(list(CLOS.cables()))
    switches = tuple(replace(each, reduces=each.name.startswith(names)) for each in plain.switches)
    return networks.of(replace(plain, switches=switches))


def test_a_domain_adds_up_if_all_its_switches_do() -> None:
    assert adding("tor-0-0-0").reducing_domains() == (frozenset(),) * 3
    assert adding("tor-0-0").reducing_domains() == (
        frozenset({"tor-0-0-[0-1]"}),
        frozenset(),
        frozenset(),
    )
    leaves = frozenset({"leaf-0-[0-1]-[0-1]"})
    assert adding("tor-0", "leaf-0").reducing_domains()[1] == leaves
    assert adding("tor-0-0", "leaf-0").reducing_domains()[1] == frozenset()
    assert [len(names) for names in adding("tor", "leaf", "spine").reducing_domains()] == [4, 2, 1]


def test_the_fabric_has_it_by_level_the_coarsest_first() -> None:
    found = fabric.of(HOSTS, [adding("tor-0", "leaf-0")])
    tors = frozenset({"tor-0-0-[0-1]", "tor-0-1-[0-1]"})
    assert tuple(each.reducing for each in found.links) == (
        frozenset(),
        frozenset({"leaf-0-[0-1]-[0-1]"}),
        tors,
    )


def test_rack_of_another_source_reduces_below_such_switches() -> None:
    """One node is labelled into the next rack, which then has nodes of two."""
    racks = {host: f"rack {at // 4}" for at, host in enumerate(HOSTS)} | {HOSTS[0]: "rack 1"}
    labels = SourceReport("labels", Provenance.SEEN, (racks,), capacity=1 << 62)
    found = fabric.of(HOSTS, [labels, adding("tor-0")])
    assert found.links[-1].reducing == frozenset({"rack 0"})


def test_all_groups_of_a_communicator_need_reducing_domains() -> None:
    """One group without such a domain disables the reduction."""
    racks = np.repeat([0, 1, 2], 4)
    tiers = [(racks, np.array([True, True, False]))]
    sums = NetworkReduction(derive.communicators(*TWO_STAGES.parts), 8, tiers)
    apart = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    assert "data" in sums.by_switches(apart)
    assert "data" not in sums.by_switches(np.arange(8))
    assert "data" not in sums.by_switches(apart + 4)


def test_step_is_shorter_with_in_network_reduction() -> None:
    """It is never longer."""
    plain = step.predict(*TWO_STAGES.parts, DGX_A100)
    summed = step.predict(*TWO_STAGES.parts, DGX_A100, summed=["data"])
    assert dict(summed.parts)["data"] < 0.7 * dict(plain.parts)["data"]
    assert summed.total < plain.total
    assert step.predict(*TWO_STAGES.parts, DGX_A100, summed=["pipeline"]) == plain


def racks(*free: int) -> tuple[Node, ...]:
    return tuple(
        node(f"n{rack}-{at}", f"r{rack}", machine="DGX A100")
        for rack, count in enumerate(free)
        for at in range(count)
    )


def admitted(nodes: tuple[Node, ...], *reducing: str) -> Admit:
    asked = job("a", replicas=8, ranks_per_pod=8, workload=TWO_STAGES)
    links = Links(4.0, reducing=frozenset(reducing))
    (found,) = decide(Snapshot(("rack",), nodes, ("default",), (asked,), (links,))).admitted
    return found


def step_us(found: Admit) -> int:
    assert found.score is not None
    assert found.score.predicted is not None
    return found.score.predicted.placed_us


def test_two_racks_that_add_up_are_better_than_one_that_does_not() -> None:
    """A stage in each; by how far it is, all of it belongs into the first."""
    nodes = racks(8, 4, 4, 5)
    near = admitted(nodes)
    assert {name[:2] for name in near.nodes} == {"n0"}
    found = admitted(nodes, "r1", "r2")
    assert {name[:2] for name in found.nodes[::2]} != {name[:2] for name in found.nodes[1::2]}
    assert {name[:2] for name in found.nodes} == {"n1", "n2"}
    assert step_us(found) < 0.99 * step_us(near)


@pytest.mark.parametrize("reducing", [("r0",), ("r0", "r1", "r2"), ("r1",)])
def test_no_rank_moves_farther_without_gain(reducing: tuple[str, ...]) -> None:
    """The first rack adds up as well, or the others together are too small."""
    found = admitted(racks(8, 4, 4), *reducing)
    assert {name[:2] for name in found.nodes} == {"n0"}
