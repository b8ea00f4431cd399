"""Whatever a job does and whichever nodes are free: its ranks stand on as many nodes as it asked
for, as it asked to, and no worse than in the network's order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from fixtures import job, node
from fixtures.examples import examples
from fixtures.jobs import with_role
from railwright_scheduler.communication import derive, graph, traffic_matrix
from railwright_scheduler.communication.grid import dense
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import DGX_A100
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.snapshot import Job, Snapshot, TierLimit, TopologyConstraints
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links

PLAIN = Transformer(8, 1024, 16, 16, 64, 4096, 32_000)
MIXTURE = replace(PLAIN, experts=16, chosen=2, gated=True)
LEVELS = ("block", "rack")


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    tensor = draw(st.sampled_from([1, 2, 4]))
    experts = draw(st.booleans())
    data = draw(st.integers(1, 6)) * (2 if experts else 1)
    split = Parallelism(
        tensor=tensor,
        pipeline=draw(st.sampled_from([1, 2, 4])),
        data=data,
        expert=2 if experts else 1,
    )
    recipe = Recipe(
        sequence=1024,
        micro_batch=1,
        global_batch=4 * data,
        sequence_parallel=True,
        sharding=draw(st.sampled_from(Sharding)),
        overlap=draw(st.booleans()),
        framework=draw(
            st.sampled_from(
                [Framework.MEGATRON, Framework.MEGATRON_PIPELINE_FIRST, Framework.TORCH]
            )
        ),
    )
    return Workload(MIXTURE if experts else PLAIN, split, recipe)


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """One such job on nodes that can hold it, in racks of two blocks."""
    workload = draw(workloads())
    ranks = workload.split.ranks
    per_node = draw(st.sampled_from([size for size in (1, 2, 4, 8) if ranks % size == 0]))
    count = ranks // per_node
    nodes = [
        node(
            f"n{at:03d}",
            draw(st.sampled_from("ab")),
            draw(st.sampled_from("xyzw")),
            machine=draw(st.sampled_from(["DGX A100", "DGX A100", "DGX A100", ""])),
        )
        for at in range(count + draw(st.integers(0, 4)))
    ]
    asked = job("a", replicas=count, ranks_per_pod=per_node, workload=workload)
    times = draw(st.sampled_from([(1.0, 1.0), (4.0, 1.0), (8.0, 4.0)]))
    return Snapshot(LEVELS, tuple(nodes), ("default",), (asked,), tuple(map(Links, times)))


def admitted(world: Snapshot) -> Admit:
    (found,) = decide(world).admitted
    return found


def the_job(world: Snapshot) -> tuple[Job, Workload]:
    (asked,) = world.jobs
    assert asked.roles[0].workload is not None
    return asked, asked.roles[0].workload


@settings(deadline=None, max_examples=examples(30))
@given(worlds())
def test_mapping_costs_no_more_than_network_order(world: Snapshot) -> None:
    found = admitted(world)
    note(str(found))
    assert len({*found.nodes}) == len(found.nodes) == the_job(world)[0].num_pods
    assert found.score is not None
    if found.score.predicted is not None:
        reported = found.score.predicted
        assert reported.placed_us <= reported.network_order_us
        assert reported.placed_us <= reported.next_best_us


@settings(deadline=None, max_examples=examples(30))
@given(worlds())
def test_crossing_bytes_equal_traffic_between_domains(world: Snapshot) -> None:
    """Counted rank by rank, from the pairs that send."""
    asked, workload = the_job(world)
    found = admitted(world)
    assert found.score is not None
    where = {each.name: each.domains for each in world.nodes}
    pairs = graph.pairs(derive.communicators(*workload.parts))
    for level, reported in enumerate(found.score.crossing):
        crossed = sum(
            size
            for (one, other), size in pairs.items()
            if where[found.nodes[one // asked.roles[0].ranks_per_pod]][: level + 1]
            != where[found.nodes[other // asked.roles[0].ranks_per_pod]][: level + 1]
        )
        assert abs(reported.placed - crossed) <= 1e-4 * crossed + 64


@settings(deadline=None, max_examples=examples(25))
@given(worlds(), st.randoms(use_true_random=False))
def test_renamed_nodes_and_domains_send_as_little_far_away(world: Snapshot, rng: Random) -> None:
    """Where several choices of nodes are as near, names decide between them: so all are taken."""
    asked, _ = the_job(world)
    nodes = [replace(each, machine="") for each in world.nodes[: asked.num_pods]]
    names = [f"m{at:03d}" for at in range(len(nodes))]
    blocks, racks = [*"ab"], [*"xyzw"]
    for each in (names, blocks, racks):
        rng.shuffle(each)
    renamed = [
        replace(
            each,
            name=name,
            domains=(blocks["ab".index(each.domains[0])], racks["xyzw".index(each.domains[1])]),
        )
        for each, name in zip(nodes, names, strict=True)
    ]
    one, other = (sent(replace(world, nodes=tuple(each))) for each in (nodes, renamed))
    assert abs(one - other) <= 1e-9 * one


def sent(world: Snapshot) -> float:
    """Bytes by how far they go: two switches further or more for each tier of uplinks."""
    found = admitted(world).score
    assert found is not None
    block, rack = found.crossing
    blocks, racks = (each.oversubscription for each in world.links)
    to_rack = 2 * racks
    to_block = max(to_rack, 3 * blocks)
    return rack.placed * (to_rack - 1) + block.placed * (to_block - to_rack)


@settings(deadline=None, max_examples=examples(25))
@given(worlds(), st.sampled_from(["rack", "block"]), st.booleans())
def test_mapped_ranks_meet_the_constraints_of_the_job(
    world: Snapshot, tier: str, spread: bool
) -> None:
    asked, _ = the_job(world)
    size = next(size for size in (2, 3, 1) if asked.num_pods % size == 0)
    constraints = TopologyConstraints(segments=(TierLimit(tier, size),))
    if spread:
        constraints = replace(constraints, spreads=(TierLimit(tier, 2 * size),))
    decisions = decide(replace(world, jobs=(with_role(asked, constraints=constraints),)))
    assume(decisions.admitted)
    where = {each.name: each.domains[: LEVELS.index(tier) + 1] for each in world.nodes}
    (found,) = decisions.admitted
    runs = [found.nodes[at : at + size] for at in range(0, len(found.nodes), size)]
    stood = [{where[name] for name in run} for run in runs]
    assert all(len(each) == 1 for each in stood)
    held = Counter(where[name] for name in found.nodes)
    assert not spread or max(held.values()) <= 2 * size


@settings(deadline=None, max_examples=examples(25))
@given(workloads(), st.sampled_from([1, 2, 4]))
def test_nodes_exchange_what_their_ranks_do(workload: Workload, per_node: int) -> None:
    found = {
        each.name: traffic_matrix.between_nodes(each, per_node)
        for each in derive.communicators(*workload.parts)
    }
    grid = dense(workload.split, workload.recipe.framework)
    whole = traffic_matrix.together(found.values(), (-(-grid.ranks // per_node),))
    expected: dict[tuple[int, int], int] = {}
    for (one, other), size in graph.pairs(derive.communicators(*workload.parts)).items():
        low, high = sorted((one // per_node, other // per_node))
        if low != high:
            expected[low, high] = expected.get((low, high), 0) + size
    reported = dict(
        zip(zip(whole.a.tolist(), whole.b.tolist(), strict=True), whole.weight, strict=True)
    )
    assert {pair for pair, size in expected.items() if size} == {*reported}
    for pair, size in reported.items():
        assert abs(size - expected[pair]) <= 1e-4 * size + 64


@given(workloads(), st.sampled_from(["tensor", "pipeline", "data", "expert"]), st.floats(1, 16))
def test_step_time_grows_with_contention(workload: Workload, name: str, times: float) -> None:
    alone = step.predict(*workload.parts, DGX_A100)
    crowded = step.predict(*workload.parts, DGX_A100, {name: times})
    assert crowded.total >= alone.total * (1 - 1e-12)
