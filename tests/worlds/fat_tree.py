"""The largest network of three layers of equal switches, rail by rail, as cables.

``ports`` k carry k^3/4 adapters without oversubscription (Al-Fares et al., 2008): half of each
switch's ports go down, half up. Adapter r of k/2 neighbouring hosts is in one ToR; the ToRs of rail
r of k^2/4 hosts meet in as many leaves; each leaf of a group has its own spines.
"""

from __future__ import annotations

from collections.abc import Iterator

from worlds.clos import Cable


def cables(ports: int, rails: int) -> Iterator[Cable]:
    """Every cable by its two ends; an adapter is ``host nic``."""
    half = ports // 2
    for block in range(ports // rails):
        for rail in range(rails):
            for at in range(half):
                tor, leaf = f"tor-{block}-{at}-{rail}", f"leaf-{block}-{rail}-{at}"
                first = (block * half + at) * half + 1
                for below in range(half):
                    yield f"gpu-{first + below:04d} mlx5_{rail}", tor
                    yield f"tor-{block}-{below}-{rail}", leaf
                    yield leaf, f"spine-{at}-{below}"
