"""Nodes and jobs that are valid as they are, changed by keyword."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from railwright_scheduler import Job, Node, Snapshot

GPU = "nvidia.com/gpu"


def node(name: str = "n0", *domains: str, **changes: Any) -> Node:
    """An empty node with 8 GPUs."""
    plain = Node(name=name, domains=domains, allocatable={GPU: 8, "pods": 110}, used={})
    return replace(plain, **changes)


def job(name: str = "a", **changes: Any) -> Job:
    """A job that wants one whole node."""
    plain = Job(
        uid=name,
        namespace="team",
        name=name,
        queue="default",
        priority=0,
        submitted_s=0,
        attempt=1,
        num_nodes=1,
        per_node={GPU: 8, "pods": 1},
    )
    return replace(plain, **changes)


def cluster(*nodes: Node, jobs: tuple[Job, ...] = (), levels: tuple[str, ...] = ()) -> Snapshot:
    """A snapshot with one queue, ``default``."""
    return Snapshot(levels=levels, nodes=nodes, queues=("default",), jobs=jobs)
