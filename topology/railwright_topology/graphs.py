"""Convert the fabric to a networkx graph, for `railwright topology -o json`, dot and graphml."""

from __future__ import annotations

import networkx as nx

from railwright_topology import speeds
from railwright_topology.fabric import Fabric
from railwright_topology.interconnect import UNKNOWN
from railwright_topology.networks import Network


def of(fabric: Fabric) -> nx.Graph:
    """Hosts and switches if a source reports cables; else nodes and their domains.

    ``tier`` is 0 for hosts. Edges have cables, bytes a second, and rails of adapters, where known.
    """
    graph = nx.Graph()
    for network in fabric.networks:
        _add_cables(graph, network)
    if not fabric.networks:
        _stand(graph, fabric)
    return graph


def _add_cables(graph: nx.Graph, network: Network) -> None:
    """Add hosts and switches. Switches of one name get their ids as suffixes."""
    wiring, layers = network.wiring, network.layers
    called: dict[str, str] = {}
    for switch in wiring.switches:
        name = switch.name if switch.name not in graph else f"{switch.name} ({switch.id})"
        called[switch.id] = name
        tier = layers.tiers.get(switch.id, -1)
        graph.add_node(name, kind="switch", tier=tier, reduces=switch.reduces)
    for uplink in wiring.uplinks:
        graph.add_node(uplink.host, kind="host", tier=0)
        rail = layers.rail(uplink)
        _widen(graph, uplink.host, called[uplink.switch], 1, uplink.bytes_per_s)
        if rail is not None:
            edge = graph.edges[uplink.host, called[uplink.switch]]
            edge["rails"] = ",".join(filter(None, (edge.get("rails"), str(rail))))
    for trunk in wiring.trunks:
        one, other = (called[end] for end in trunk.ends)
        _widen(graph, one, other, trunk.cables, trunk.cables * trunk.bytes_per_s)


def _widen(graph: nx.Graph, one: str, other: str, cables: int, bytes_per_s: int) -> None:
    held = graph.get_edge_data(one, other, {"cables": 0, "bytes_per_s": 0})
    wide = held["bytes_per_s"] + bytes_per_s
    graph.add_edge(
        one, other, cables=held["cables"] + cables, bytes_per_s=wide, speed=speeds.text(wide)
    )


def _stand(graph: nx.Graph, fabric: Fabric) -> None:
    finest = len(fabric.levels)
    for node, place in fabric.places.items():
        graph.add_node(node, kind="host", tier=0)
        inner = node
        for level in range(finest - 1, -1, -1):
            if place[level] != UNKNOWN:
                # Domains of two tiers may have the same name.
                outer = f"{place[level]} ({fabric.levels[level]})"
                graph.add_node(outer, kind="domain", tier=finest - level)
                graph.add_edge(inner, outer)
                inner = outer
