"""How long flows take that share links, by SimGrid's fluid model.

Links share their bandwidth among flows max-min fairly, and whenever a flow ends what it leaves is
shared anew (Casanova et al., "Versatile, scalable, and accurate simulation of distributed
applications and platforms", 2014). Corrections for TCP and latencies are off: what is left knows of
capacities alone. SimGrid is Debian's build of it, for the Python that Debian has.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright_testbed import requirements

PACKAGE = {"python3-simgrid": "simgrid"}
SIMULATOR = Path(__file__).with_name("simgrid_phases.py")
DEADLINE_S = 300.0

Flow = tuple[int, int, float]
"""From a node to another one, so many bytes."""

HEAD = """\
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
<zone id="network" routing="Full">"""
TAIL = "</zone></platform>"


@dataclass(frozen=True, slots=True)
class Tier:
    """The domain of each node, and bytes a second out of each domain, and as many into it."""

    domains: tuple[int, ...]
    uplinks: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Each node sends ``adapters`` bytes a second at most, and gets as many; ``tiers`` are the
    nearest first, and beyond the last nothing is scarce."""

    adapters: float
    tiers: tuple[Tier, ...]


def seconds(network: Network, phases: Sequence[Sequence[Flow]]) -> list[float]:
    """Of each phase, whose flows begin together, until the last of them has ended."""
    if not any(phases):
        return [0.0 for _ in phases]
    pairs = sorted({(one, other) for flows in phases for one, other, _ in flows})
    named = [[(f"n{a}", f"n{b}", round(size)) for a, b, size in flows] for flows in phases]
    asked = json.dumps({"platform": "\n".join(_platform(network, pairs)), "phases": named})
    answer = subprocess.run(
        [requirements.SYSTEM_PYTHON, "-P", SIMULATOR],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert answer.returncode == 0, answer.stderr
    found: list[float] = json.loads(answer.stdout)
    return found


def _platform(network: Network, pairs: Sequence[tuple[int, int]]) -> Iterator[str]:
    """SimGrid's description of the nodes that take part, with a route for each pair that does."""
    yield HEAD
    for node in sorted({node for pair in pairs for node in pair}):
        yield f'<host id="n{node}" speed="1Gf"/>'
    routes = {pair: [*_route(network, *pair)] for pair in pairs}
    for link, bandwidth in sorted({link for route in routes.values() for link in route}):
        yield f'<link id="{link}" bandwidth="{bandwidth!r}Bps" latency="0s"/>'
    for (one, other), route in routes.items():
        yield f'<route src="n{one}" dst="n{other}" symmetrical="NO">'
        yield from (f'<link_ctn id="{link}"/>' for link, _ in route)
        yield "</route>"
    yield TAIL


def _route(network: Network, one: int, other: int) -> Iterator[tuple[str, float]]:
    """Up to where they meet, and down again."""
    yield f"out-{one}", network.adapters
    yield f"in-{other}", network.adapters
    for number, tier in enumerate(network.tiers):
        here, there = tier.domains[one], tier.domains[other]
        if here == there:
            return
        yield f"up-{number}-{here}", tier.uplinks[here]
        yield f"down-{number}-{there}", tier.uplinks[there]
