"""The Service of a process leads to the replica that leads: this one writes its EndpointSlice.

The Service has no selector, so nobody else writes endpoints for it, and every replica can be ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from dataclasses import dataclass
from typing import Any

from railwright_kube import bodies, errors, paths
from railwright_kube.client import Api

logger = logging.getLogger(__name__)

INTERVAL_S = 15.0
"""How often the slice is compared: a former leader may have written it late."""

MANAGER = "railwright.dev"


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """The endpoint of ``service`` in ``namespace``: the port of this name at ``ip``, which is empty
    if this process runs in no pod."""

    api: Api
    service: str
    namespace: str
    ip: str
    port_name: str
    port: int

    async def run(self) -> None:
        """Keep the slice as it must be, until cancelled."""
        while self.ip:
            try:
                await self.write()
            except errors.RequestFailed as error:
                extra = {"service": self.service, "error": str(error)}
                logger.warning("endpoint of the leader not written", extra=extra)
            await asyncio.sleep(INTERVAL_S)

    async def write(self) -> None:
        """Write the slice if it differs. Raises RequestFailed."""
        body, kind = self._body(), paths.endpoint_slices(self.namespace)
        path = f"{kind}/{body['metadata']['name']}"
        try:
            found = await self.api.get(path)
        except errors.NotFoundError:
            with contextlib.suppress(errors.AlreadyExistsError):
                await self.api.create(kind, body)
            return
        ours = {key: body[key] for key in ("endpoints", "ports")}
        if patch := bodies.merge_patch({key: found.get(key) for key in ours}, ours):
            await self.api.patch(path, patch)

    def _body(self) -> dict[str, Any]:
        # The kind of address of a slice cannot be changed.
        family = f"IPv{ipaddress.ip_address(self.ip).version}"
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self.service}-{family.lower()}",
                "namespace": self.namespace,
                "labels": {
                    "kubernetes.io/service-name": self.service,
                    "endpointslice.kubernetes.io/managed-by": MANAGER,
                },
            },
            "addressType": family,
            "endpoints": [{"addresses": [self.ip], "conditions": {"ready": True}}],
            "ports": [{"name": self.port_name, "port": self.port, "protocol": "TCP"}],
        }
