"""Nodes that must not be disturbed: those that a job of ours holds, and those whose devices any pod
uses."""

from __future__ import annotations

from collections.abc import Iterable

from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.pod_index import PodIndex


def of(nodes: Iterable[str], jobs: Jobs, pods: PodIndex) -> frozenset[str]:
    """Which of these nodes are busy."""
    held = {node for cached in jobs.all() if cached.record.live for node in cached.record.nodes}
    return frozenset(node for node in nodes if node in held or _uses_devices(node, pods))


def _uses_devices(node: str, pods: PodIndex) -> bool:
    """Devices are resources that somebody's plugin named: ``nvidia.com/gpu``."""
    return any(amount > 0 and "/" in name for name, amount in pods.used(node).items())
