"""Check the target addresses of probes; the controllers and the agents use it.

A probe goes to a node, so never to the sending machine itself, to link-local services (a cloud's
metadata service is at 169.254.169.254), or to multicast addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def refusal(host: str) -> str:
    """Why this address is not probed; empty for an address that a node may have."""
    address = parse(host)
    if address is None:
        return f"{host!r} is not an IP address"
    kinds = {
        "a loopback": address.is_loopback,
        "a link-local": address.is_link_local,
        "a multicast": address.is_multicast,
        "the unspecified": address.is_unspecified,
        "a reserved": address.is_reserved,
    }
    found = next((kind for kind, applies in kinds.items() if applies), None)
    return f"{address} is {found} address" if found else ""


def within(host: str, networks: Iterable[str]) -> bool:
    """Whether an address is in one of these networks, in CIDR notation; False for no address."""
    address = parse(host)
    return address is not None and any(
        network is not None and address in network for network in map(_network, networks)
    )


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def parse(host: str) -> Address | None:
    """The address; None for names, and for addresses with a zone."""
    try:
        address = None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None
    embedded = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return embedded or address
