"""Addresses of this machine that are no loopback addresses, for agents of nodes that are simulated.

They are of the range for benchmarks (RFC 2544), which nothing routes. The kernel takes them for its
own while the block lasts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

NETWORKS = 512


@contextlib.contextmanager
def opened() -> Iterator[str]:
    """A network of 254 hosts that no other test uses, in CIDR notation."""
    for number in range(NETWORKS):
        at = (os.getpid() + number) % NETWORKS
        network = f"198.{18 + at // 256}.{at % 256}.0/24"
        route = ["local", network, "dev", "lo"]
        made = subprocess.run(["ip", "route", "add", *route], capture_output=True, text=True)
        if made.returncode == 0:
            break
        assert "File exists" in made.stderr, made.stderr
    else:
        raise AssertionError("all networks are taken")
    try:
        yield network
    finally:
        subprocess.run(["ip", "route", "del", *route], check=True)


def address(network: str, number: int) -> str:
    """The address of a host in it."""
    return f"{network.rpartition('.')[0]}.{number}"
