"""A survey carried out: agents are sent to each other, pair by pair, until it is known where all
stand. Whoever runs it needs to reach them all, and need be none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from railwright_agent import prober
from railwright_agent.handshake import Kind, ProbeError
from railwright_topology.probing import crowds, findings
from railwright_topology.probing.findings import Findings
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey

CROWD_S = 3.0
"""Long, as those that begin first have the links to themselves until the others are there."""


@dataclass(frozen=True, slots=True)
class Agents:
    """The address of each node's agent, and what all of them share."""

    addresses: Mapping[str, str]
    port: int
    token: bytes


async def run(
    agents: Agents, *, at_once: int, seconds: float, say: Callable[[str], object]
) -> Findings:
    """Probe until nothing is left to ask; ``at_once`` pairs at a time, no node in two of them."""
    survey = Survey(sorted(agents.addresses), at_once=at_once)
    looks = failures = 0
    while pairs := survey.next_round():
        readings = await asyncio.gather(*(_reading(agents, pair, seconds, say) for pair in pairs))
        survey.tell(dict(zip(pairs, readings, strict=True)))
        looks += len(pairs)
        failures += readings.count(Reading())
    found = findings.of(survey)
    say(f"{found.pairs} pairs, {looks} probes, {failures} of them failed")
    return found


async def uplinks(agents: Agents, found: Findings, *, say: Callable[[str], object]) -> Findings:
    """The same with how many nodes can send out of each domain at once: its uplinks are filled for
    it, one domain after the other."""
    leaving: tuple[dict[str, float], ...] = tuple({} for _ in found.tiers)
    for crowd in crowds.of(found):
        alone = await _reading(agents, crowd.alone, CROWD_S, say, Kind.CROWD)
        readings = await asyncio.gather(
            *(_reading(agents, pair, CROWD_S, say, Kind.CROWD) for pair in crowd.pairs)
        )
        room = crowd.leaving([each.bytes_per_s for each in readings], alone.bytes_per_s)
        if room is not None:
            leaving[crowd.tier][crowd.domain] = room
    return replace(found, leaving=leaving)


async def _reading(
    agents: Agents,
    pair: tuple[str, str],
    seconds: float,
    say: Callable[[str], object],
    kind: Kind = Kind.ERRAND,
) -> Reading:
    source, target = (agents.addresses[node] for node in pair)
    try:
        found = await prober.send(
            source, target, agents.port, agents.token, seconds=seconds, kind=kind
        )
    except ProbeError as error:
        say(f"{' -> '.join(pair)}: {error}")
        return Reading()
    return Reading(found.latency_s, found.bytes_per_s)
