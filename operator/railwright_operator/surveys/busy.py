"""Busy nodes, which surveys leave out: nodes of a running job, or with devices in use."""

from __future__ import annotations

from collections.abc import Iterable

from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.pod_index import PodIndex
from railwright_scheduler.model.snapshot import is_device


def of(nodes: Iterable[str], jobs: Jobs, pods: PodIndex) -> frozenset[str]:
    """The busy ones of these nodes."""
    held = {node for cached in jobs.all() if cached.record.live for node in cached.record.nodes}
    return frozenset(node for node in nodes if node in held or _uses_devices(node, pods))


def _uses_devices(node: str, pods: PodIndex) -> bool:
    return any(amount > 0 and is_device(name) for name, amount in pods.usage(node).used.items())
