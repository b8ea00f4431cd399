"""A survey carried out: agents are sent to each other, pair by pair, until it is known where all
stand. Whoever runs it needs to reach them all, and need be none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from railwright_agent import prober
from railwright_agent.handshake import ProbeError
from railwright_topology.probing import findings
from railwright_topology.probing.findings import Findings
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey


@dataclass(frozen=True, slots=True)
class Agents:
    """The address of each node's agent, and what all of them share."""

    addresses: Mapping[str, str]
    port: int
    token: bytes


async def run(
    agents: Agents, *, at_once: int, seconds: float, say: Callable[[str], object]
) -> Findings:
    """Probe until nothing is left to ask; ``at_once`` pairs at a time, none with a common node."""
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


async def _reading(
    agents: Agents, pair: tuple[str, str], seconds: float, say: Callable[[str], object]
) -> Reading:
    source, target = (agents.addresses[node] for node in pair)
    try:
        found = await prober.send(source, target, agents.port, agents.token, seconds=seconds)
    except ProbeError as error:
        say(f"{' -> '.join(pair)}: {error}")
        return Reading()
    return Reading(found.latency_s, found.bytes_per_s)
