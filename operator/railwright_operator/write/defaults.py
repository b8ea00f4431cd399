"""What exists from the start: the queue of jobs that name none, and the fabric."""

from __future__ import annotations

from typing import Any

from railwright_api import names
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api


async def ensure(api: Api) -> None:
    """Create what is missing; what a person changed stays. Raises RequestFailed."""
    await _ensure(api, names.QUEUES, _object("Queue", {}))
    await _ensure(api, names.FABRICS, _object("Fabric", {}))


async def _ensure(api: Api, plural: str, body: dict[str, Any]) -> None:
    try:
        await api.get(paths.one(plural, names.SINGLETON))
        return
    except errors.NotFoundError:
        pass
    try:
        await api.create(paths.kind(plural), body)
    except errors.AlreadyExistsError:
        return


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": names.SINGLETON},
        "spec": spec,
    }
