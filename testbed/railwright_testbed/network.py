"""The network of the real nodes: one bridge, one namespace and veth pair a node, plain routes.

A testbed owns a /20: the first /24 of it is the bridge and the nodes, each node has a /26 for its
pods, and the last /24 is for services. The host is on the bridge, so pods reach it and it reaches
them without any address translation.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from railwright_testbed import command, kernel_objects, sweeping
from railwright_testbed.errors import TestbedError

# The second one is for benchmarks of networks (RFC 2544), for machines that route all of 10/8.
_POOLS = (IPv4Network("10.64.0.0/12"), IPv4Network("198.18.0.0/15"))
_FIRST_NODE_ADDRESS = 10
NODES_MOST = 44


@dataclass(frozen=True, slots=True)
class Subnets:
    """How one testbed's /20 is divided."""

    whole: IPv4Network

    @property
    def nodes(self) -> IPv4Network:
        return next(self.whole.subnets(new_prefix=24))

    @property
    def services(self) -> IPv4Network:
        return list(self.whole.subnets(new_prefix=24))[-1]

    @property
    def host(self) -> IPv4Address:
        return self.nodes[1]

    def node_address(self, index: int) -> IPv4Address:
        return self.nodes[_FIRST_NODE_ADDRESS + index]

    def pods_of(self, index: int) -> IPv4Network:
        # The four /26 of the first /24 are the nodes' own.
        return list(self.whole.subnets(new_prefix=26))[4 + index]


def create(testbed_id: str, nodes: Sequence[str]) -> Subnets:
    """Make the bridge, and for each node its namespace, link and routes."""
    if len(nodes) > NODES_MOST:
        raise TestbedError(f"{len(nodes)} real nodes requested, expected at most {NODES_MOST}")
    with sweeping.one_at_a_time():
        # Once the bridge has its address, its route marks the subnet as in use.
        subnets = Subnets(_free_subnet())
        batch(_bridge_commands(testbed_id, subnets))
    for index, name in enumerate(nodes):
        namespace = kernel_objects.namespace_name(testbed_id, name)
        batch(_link_commands(testbed_id, namespace, index))
        batch(_node_commands(subnets, index, len(nodes)), namespace=namespace)
    host_routes = [
        f"route add {subnets.pods_of(index)} via {subnets.node_address(index)}"
        for index in range(len(nodes))
    ]
    batch(host_routes)
    return subnets


def set_link(testbed_id: str, index: int, *, up: bool) -> None:
    """Plug a node's cable in, or pull it: packets are dropped silently."""
    link = kernel_objects.link_name(testbed_id, index)
    batch([f"link set {link} {'up' if up else 'down'}"])


def _free_subnet() -> IPv4Network:
    routes = json.loads(command.output(["ip", "-json", "route", "show", "table", "all"]))
    taken = [
        ipaddress.ip_network(route["dst"], strict=False)
        for route in routes
        if route["dst"] != "default" and ":" not in route["dst"]
    ]
    for candidate in _candidates():
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    raise TestbedError(
        f"every /20 in {' and '.join(map(str, _POOLS))} overlaps a route of this machine "
        "(`ip route`): remove a stale testbed with `python -m railwright_testbed down --all`"
    )


def _candidates() -> Iterator[IPv4Network]:
    for pool in _POOLS:
        yield from pool.subnets(new_prefix=20)


def _bridge_commands(testbed_id: str, subnets: Subnets) -> list[str]:
    bridge = kernel_objects.bridge_name(testbed_id)
    # With no address of its own a bridge takes the lowest of its ports', and so changes it.
    mac = f"02:{testbed_id[0:2]}:{testbed_id[2:4]}:{testbed_id[4:6]}:00:01"
    return [
        f"link add {bridge} address {mac} type bridge",
        f"address add {subnets.host}/{subnets.nodes.prefixlen} dev {bridge}",
        f"link set {bridge} up",
    ]


def _link_commands(testbed_id: str, namespace: str, index: int) -> list[str]:
    link = kernel_objects.link_name(testbed_id, index)
    return [
        f"netns add {namespace}",
        f"link add {link} type veth peer name eth0 netns {namespace}",
        f"link set {link} master {kernel_objects.bridge_name(testbed_id)} up",
    ]


def _node_commands(subnets: Subnets, index: int, count: int) -> list[str]:
    routes = [
        f"route add {subnets.pods_of(other)} via {subnets.node_address(other)}"
        for other in range(count)
        if other != index
    ]
    return [
        "link set lo up",
        f"address add {subnets.node_address(index)}/{subnets.nodes.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {subnets.host}",
        *routes,
    ]


def batch(commands: Sequence[str], *, namespace: str = "", program: str = "ip") -> None:
    """Give `ip` or `tc` several commands at once, in a namespace or in none."""
    in_namespace = ["-netns", namespace] if namespace else []
    command.output(
        [program, *in_namespace, "-batch", "-"], stdin="".join(f"{line}\n" for line in commands)
    )
