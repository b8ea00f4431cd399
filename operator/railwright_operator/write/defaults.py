"""Create the queue of jobs that name none."""

from __future__ import annotations

import contextlib

from railwright_api import names, routes
from railwright_kube import bodies, errors
from railwright_kube.client import Api


async def ensure(api: Api) -> None:
    """Create the queue if it is missing; an existing one is not changed. Raises RequestFailed."""
    body = bodies.manifest(names.API_VERSION, "Queue", {"name": names.SINGLETON}, {})
    try:
        await api.get(routes.one(names.QUEUES, names.SINGLETON))
    except errors.NotFoundError:
        with contextlib.suppress(errors.AlreadyExistsError):
            await api.create(routes.kind(names.QUEUES), body)
