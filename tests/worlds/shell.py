"""The operator's I/O parts over a real API server, for tests of each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from railwright_operator import connection, metrics
from railwright_operator.connection import Connection
from railwright_operator.kube.client import Api
from railwright_operator.kube.errors import AlreadyExistsError
from railwright_testbed import ControlPlane, Entrance, identity

DEADLINE_S = 40.0


def connect(plane: ControlPlane, *, through: Entrance | None = None) -> Connection:
    """As the admin of this control plane; ``through`` is that of a proxy."""
    if through is None:
        return connection.load(str(plane.kubeconfig))
    port = through.url.rpartition(":")[2]
    kubeconfig = plane.directory / f"through-{port}.kubeconfig"
    identity.write_kubeconfig(kubeconfig, through, token=plane.token)
    return connection.load(str(kubeconfig))


@asynccontextmanager
async def api(
    source: Connection, *, may_write: Callable[[], bool] = lambda: True
) -> AsyncIterator[Api]:
    """A client with series of its own."""
    series = metrics.build(CollectorRegistry())
    async with Api(
        source, may_write=may_write, metrics=series.api, clock=time.monotonic, rng=Random(0)
    ) as client:
        yield client


async def until(condition: Callable[[], Any], what: str, *, deadline_s: float = DEADLINE_S) -> Any:
    """Wait for a condition; its value. Fails naming ``what`` did not come true."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end_s, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.02)
    return value


async def allow_pods(api: Api, namespace: str) -> None:
    """Give the namespace the service account that pods need, if it has not got it yet."""
    with contextlib.suppress(AlreadyExistsError):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await api.create(path, {"metadata": {"name": "default"}})


def config_map(name: str, **data: str) -> dict[str, Any]:
    """The smallest object that can be created, listed and watched."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that no scheduler touches."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name} | metadata,
        "spec": {
            "schedulerName": "railwright",
            "containers": [{"name": "main", "image": "none"}],
        },
    }
