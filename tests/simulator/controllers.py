"""What railwright-controllers publish, as far as decisions read it: the Fabric's topology.

Two nodes share a rack, and the bandwidth of a rack's uplinks changes now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from railwright_api import names, routes
from railwright_conversion import interconnects
from railwright_kube import paths
from railwright_topology.interconnect import Interconnect
from railwright_topology.links import Links
from simulator.api_server import ApiServer
from simulator.virtual_loop import VirtualLoop

CHECK_S = 2.0
FABRIC = routes.one(names.FABRICS, names.SINGLETON)


class Controllers:
    """They watch nodes, and publish a topology once there is any."""

    def __init__(self, loop: VirtualLoop, server: ApiServer, rng: Random) -> None:
        self._loop = loop
        self._server = server
        self._rng = rng
        self._uplinks: dict[str, float] = {}
        self._published: Interconnect | None = None
        server.request(
            "POST",
            routes.kind(names.FABRICS),
            {
                "apiVersion": names.API_VERSION,
                "kind": "Fabric",
                "metadata": {"name": names.SINGLETON},
                "spec": {},
            },
        )
        loop.call_soon(self._check)

    async def end(self) -> None:
        """There are no faults."""

    compared = left_out = 0

    def release(self) -> None:
        """They run."""

    def unpublished(self) -> list[str]:
        """What has yet to be published; they are not compared."""
        return []

    unsettled = unpublished

    def events(self, uplinks: Sequence[float]) -> dict[str, Callable[[], str]]:
        """What happens to them, by the names of the events."""
        return {"link": partial(self.change_link, uplinks)}

    def change_link(self, uplinks: Sequence[float]) -> str:
        """The uplinks of a rack get one of these bandwidths."""
        racks = sorted({rack for (rack,) in self._found().places.values()})
        if not racks:
            return ""
        rack = self._rng.choice(racks)
        self._uplinks[rack] = self._rng.choice(uplinks)
        return f"{rack} {self._uplinks[rack]}"

    def _found(self) -> Interconnect:
        nodes = sorted(node["metadata"]["name"] for node in self._server.objects(paths.NODES))
        places = {name: (f"r{int(name[1:]) // 2}",) for name in nodes}
        racks = {rack for (rack,) in places.values()}
        leaving = {rack: self._uplinks[rack] for rack in sorted(racks & self._uplinks.keys())}
        return Interconnect(("rack",), places, (Links(leaving=leaving),))

    def _check(self) -> None:
        found = self._found()
        if found != self._published:
            self._published = found
            status = {"topology": interconnects.render(found)}
            self._server.request("PATCH", f"{FABRIC}/status", {"status": status})
        self._loop.call_later(CHECK_S, self._check)
