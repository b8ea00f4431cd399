"""Create the default objects: the queue of jobs without one, and the Fabric."""

from __future__ import annotations

import contextlib

from railwright_api import names, routes
from railwright_kube import errors
from railwright_kube.client import Api


async def ensure(api: Api) -> None:
    """Create missing objects; existing ones are not changed. Raises RequestFailed."""
    for plural, kind in ((names.QUEUES, "Queue"), (names.FABRICS, "Fabric")):
        metadata = {"name": names.SINGLETON}
        body = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": {}}
        try:
            await api.get(routes.one(plural, names.SINGLETON))
        except errors.NotFoundError:
            with contextlib.suppress(errors.AlreadyExistsError):
                await api.create(routes.kind(plural), body)
