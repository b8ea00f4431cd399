"""Hypothesis strategies for snapshots: small worlds with every feature the scheduler decides by."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from railwright_scheduler import (
    UNKNOWN_DOMAIN,
    Job,
    Node,
    Snapshot,
    Taint,
    Toleration,
    Unavailable,
)
from worlds.jobs import GPU

LEVELS = ("spine", "block", "rack")
_DOMAINS = (UNKNOWN_DOMAIN, "a", "b", "c")
_KINDS = ("h100", "b200")
_TAINTS = (
    Taint("dedicated", "research", "NoSchedule"),
    Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),
    Taint("noisy", "", "PreferNoSchedule"),
    Taint("broken", "", "NoExecute"),
)
_TOLERATIONS = (
    Toleration("", "Exists", "", ""),
    Toleration("dedicated", "Equal", "research", ""),
    Toleration("broken", "Exists", "", "NoExecute"),
)


@st.composite
def nodes(draw: DrawFn, name: str, levels: int) -> Node:
    """A node with up to 8 GPUs, some of them taken, anywhere in the tree."""
    gpus = draw(st.sampled_from((8, 8, 4, 0)))
    return Node(
        name=name,
        domains=tuple(draw(st.lists(_domain(), min_size=levels, max_size=levels))),
        allocatable={GPU: gpus, "cpu": 64_000, "pods": 4},
        used=draw(_used(gpus)),
        labels=draw(st.sampled_from([{}, *({"kind": kind} for kind in _KINDS)])),
        taints=tuple(draw(st.lists(st.sampled_from(_TAINTS), max_size=1))),
        unavailable=draw(st.sampled_from((None, None, None, *Unavailable))),
    )


@st.composite
def jobs(draw: DrawFn, name: str, nodes_max: int) -> Job:
    """A job for any of those nodes, or for none."""
    return Job(
        uid=name,
        namespace=draw(st.sampled_from(("red", "blue"))),
        name=name,
        queue=draw(st.sampled_from(("default", "default", "default", "other"))),
        priority=draw(st.integers(0, 2)),
        submitted_s=draw(st.integers(0, 3)),
        attempt=draw(st.integers(1, 3)),
        num_nodes=draw(st.integers(1, nodes_max)),
        per_node=draw(st.sampled_from(({GPU: 1}, {GPU: 4, "pods": 1}, {GPU: 8}, {"cpu": 1_000}))),
        selector=draw(st.sampled_from(({}, {}, {"kind": "h100"}))),
        tolerations=tuple(draw(st.lists(st.sampled_from(_TOLERATIONS), max_size=1))),
    )


@st.composite
def snapshots(draw: DrawFn, nodes_max: int = 8, jobs_max: int = 6) -> Snapshot:
    """A whole world of up to three levels."""
    levels = draw(st.integers(0, len(LEVELS)))
    return Snapshot(
        levels=LEVELS[len(LEVELS) - levels :],
        nodes=tuple(draw(nodes(f"n{i}", levels)) for i in range(draw(st.integers(0, nodes_max)))),
        queues=("default", "spare"),
        jobs=tuple(draw(jobs(f"j{i}", nodes_max)) for i in range(draw(st.integers(0, jobs_max)))),
    )


@st.composite
def gangs(draw: DrawFn, nodes_max: int = 9, levels_max: int = 3) -> Snapshot:
    """One gang that fits on equal nodes, so that only where it goes is in question."""
    levels = draw(st.integers(0, levels_max))
    paths = st.lists(_domain(), min_size=levels, max_size=levels).map(tuple)
    domains = draw(st.lists(paths, min_size=1, max_size=nodes_max))
    gang = Job(
        uid="gang",
        namespace="red",
        name="gang",
        queue="default",
        priority=0,
        submitted_s=0,
        attempt=1,
        num_nodes=draw(st.integers(1, len(domains))),
        per_node={GPU: 1},
    )
    return Snapshot(
        levels=tuple(f"level-{i}" for i in range(levels)),
        nodes=tuple(
            Node(f"n{i}", path, {GPU: 8}, {GPU: draw(st.integers(0, 7))})
            for i, path in enumerate(domains)
        ),
        queues=("default",),
        jobs=(gang,),
    )


def _domain() -> SearchStrategy[str]:
    return st.sampled_from(_DOMAINS)


def _used(gpus: int) -> SearchStrategy[dict[str, int]]:
    taken = st.integers(0, gpus).map(lambda count: {GPU: count, "pods": min(count, 4)})
    return st.one_of(st.just({}), taken)
