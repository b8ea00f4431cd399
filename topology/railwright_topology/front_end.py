"""Remove the front-end network from a wiring: what is left are the accelerators' own cables.

Adapters for storage and for traffic of processors are plugged into switches too, and hosts that
share these are no neighbours. Switches that only such adapters use are removed with them; a switch
with both kinds of cables stays. `fabric` calls it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import networkx as nx

from railwright_topology.wiring import Wiring

Nic = tuple[str, str]
"""A host, and what its adapter is called."""


def without(wiring: Wiring, front_end: Collection[Nic]) -> Wiring:
    """The same wiring where none of these adapters is plugged in."""
    left = tuple(up for up in wiring.uplinks if (up.host, up.nic) not in front_end)
    if len(left) == len(wiring.uplinks):
        return wiring
    kept = {uplink.switch for uplink in left}
    gone = {uplink.switch for uplink in wiring.uplinks} - kept
    graph = nx.Graph([trunk.ends for trunk in wiring.trunks])
    # One that only such switches are below carries nothing else either.
    while further := {at for at in {*graph} - gone - kept if gone.issuperset(graph[at])}:
        gone |= further
    return replace(
        wiring,
        switches=tuple(switch for switch in wiring.switches if switch.id not in gone),
        uplinks=left,
        trunks=tuple(trunk for trunk in wiring.trunks if gone.isdisjoint(trunk.ends)),
    )
