"""Placement against brute force: the spans are the best there are, for any tree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from random import Random

import numpy as np
from hypothesis import given, note, settings
from hypothesis import strategies as st

from fixtures import GPU, cluster, job, node, outcome, table
from fixtures.examples import examples
from fixtures.strategies import gangs
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.snapshot import UNKNOWN_DOMAIN, Node, Snapshot
from railwright_scheduler.placement import domains
from railwright_scheduler.policy.decide import decide


@given(gangs())
def test_a_gang_spans_the_fewest_racks_then_blocks_of_any_choice(snapshot: Snapshot) -> None:
    note(table(snapshot))
    admit = _admitted(snapshot)
    note(outcome(decide(snapshot)))
    choices = combinations(snapshot.nodes, snapshot.jobs[0].num_pods)
    best = min(tuple(reversed(_spans(choice))) for choice in choices)
    assert tuple(reversed(admit.spans)) == best
    chosen = [_by_name(snapshot)[name] for name in admit.nodes]
    assert admit.spans == _spans(chosen) == domains.spans(chosen, len(snapshot.levels))


@given(gangs(nodes_max=30, levels_max=4))
def test_the_ranks_of_every_domain_are_contiguous(snapshot: Snapshot) -> None:
    note(table(snapshot))
    nodes = [_by_name(snapshot)[name] for name in _admitted(snapshot).nodes]
    assert len({each.name for each in nodes}) == snapshot.jobs[0].num_pods
    for depth in range(1, len(snapshot.levels) + 1):
        domains = [_domain(each, depth) for each in nodes]
        changes = sum(a != b for a, b in pairwise(domains))
        assert changes == len(set(domains)) - 1


@given(gangs(nodes_max=16), st.randoms(use_true_random=False))
def test_other_names_for_nodes_and_domains_keep_the_spans(snapshot: Snapshot, rng: Random) -> None:
    names = [f"m{i}" for i in range(len(snapshot.nodes))]
    labels = ["x", "y", "z"]
    rng.shuffle(names)
    rng.shuffle(labels)
    renamed = dict(zip("abc", labels, strict=True)) | {UNKNOWN_DOMAIN: UNKNOWN_DOMAIN}
    nodes = tuple(
        Node(name, tuple(map(renamed.__getitem__, each.domains)), each.allocatable, each.used)
        for name, each in zip(names, snapshot.nodes, strict=True)
    )
    twin = Snapshot(snapshot.levels, nodes, snapshot.queues, snapshot.jobs)
    note(f"{table(snapshot)}\n{table(twin)}")
    assert _admitted(twin).spans == _admitted(snapshot).spans


@given(gangs(nodes_max=16))
def test_one_more_free_node_never_makes_the_spans_worse(snapshot: Snapshot) -> None:
    path = tuple("a" for _ in snapshot.levels)
    spare = Node("spare", path, {GPU: 8}, {})
    wider = Snapshot(snapshot.levels, (*snapshot.nodes, spare), snapshot.queues, snapshot.jobs)
    note(table(wider))
    assert _admitted(wider).spans[::-1] <= _admitted(snapshot).spans[::-1]


_RAGGED = st.lists(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(60))
@given(_RAGGED, st.data())
def test_large_ragged_trees_match_a_count_of_domains(
    spines: list[list[list[int]]], data: st.DataObject
) -> None:
    """Exact by another way: which numbers of (racks, blocks, spines) can hold how many pods."""
    sizes = [size for spine in spines for block in spine for size in block]
    count = data.draw(st.integers(1, sum(sizes)))
    nodes = [
        node(f"n{s}-{b}-{r}-{i}", f"s{s}", f"b{b}", f"r{r}")
        for s, spine in enumerate(spines)
        for b, block in enumerate(spine)
        for r, size in enumerate(block)
        for i in range(size)
    ]
    world = cluster(*nodes, jobs=(job(replicas=count),), levels=("spine", "block", "rack"))
    held = _most_pods(spines)
    best = min(index for index in np.ndindex(held.shape) if held[index] >= count)
    note(table(world))
    assert _admitted(world).spans[::-1] == best


def _most_pods(spines: list[list[list[int]]]) -> np.ndarray:
    """The most pods that [racks, blocks, spines] of those numbers can hold; -1 if impossible."""
    blocks = [block for spine in spines for block in spine]
    shape = (sum(map(len, blocks)) + 1, len(blocks) + 1, len(spines) + 1)
    cluster_held = np.full(shape, -1)
    cluster_held[0, 0, 0] = 0
    for spine in spines:
        contents = np.full(shape[:2], -1)
        contents[0, 0] = 0
        for block in spine:
            largest = np.cumsum(sorted(block, reverse=True))
            options = [(racks + 1, 1, int(pods)) for racks, pods in enumerate(largest)]
            contents = _with_one_of(contents, options)
        options3 = [
            (*map(int, at), 1, int(contents[tuple(at)])) for at in np.argwhere(contents > 0)
        ]
        cluster_held = _with_one_of(cluster_held, options3)
    return cluster_held


def _with_one_of(held: np.ndarray, options: Sequence[tuple[int, ...]]) -> np.ndarray:
    best = held.copy()
    for *step, pods in options:
        for at in np.argwhere(held >= 0):
            to = tuple(at + step)
            best[to] = max(best[to], held[tuple(at)] + pods)
    return best


def _admitted(snapshot: Snapshot) -> Admit:
    (admit,) = decide(snapshot).admitted
    return admit


def _by_name(snapshot: Snapshot) -> dict[str, Node]:
    return {each.name: each for each in snapshot.nodes}


def _spans(nodes: tuple[Node, ...] | list[Node]) -> tuple[int, ...]:
    depths = range(1, len(nodes[0].domains) + 1)
    return tuple(len({_domain(each, depth) for each in nodes}) for depth in depths)


def _domain(each: Node, depth: int) -> tuple[str, ...]:
    """The path, with the node's own name from the first missing label on."""
    path = each.domains[:depth]
    return (*path, each.name) if UNKNOWN_DOMAIN in path else path
