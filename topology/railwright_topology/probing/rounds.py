"""Carry out a survey: measure its pairs round by round until none is left.

Selecting pairs among many nodes takes time, so it runs in a thread, and the event loop goes on. The
operator and the agents' command line call it with their way to send probes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from railwright_topology.probing import contention
from railwright_topology.probing.findings import Findings
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey

Pair = tuple[str, str]
Probe = Callable[[Pair], Awaitable[Reading]]
"""Let the first node of a pair probe the second; a failed probe returns an empty reading."""


async def _always() -> bool:
    return True


async def carry_out(
    survey: Survey, probe: Probe, *, goes_on: Callable[[], Awaitable[bool]] = _always
) -> None:
    """Measure until no pair is left, or ``goes_on`` returns False before a round."""
    while await goes_on() and (pairs := await asyncio.to_thread(survey.next_round)):
        readings = await asyncio.gather(*map(probe, pairs))
        await asyncio.to_thread(survey.record, dict(zip(pairs, readings, strict=True)))


async def with_uplinks(found: Findings, probe: Probe) -> Findings:
    """Add how many nodes can send out of each domain at once, measured under load one domain after
    the other."""
    leaving: tuple[dict[str, float], ...] = tuple({} for _ in found.tiers)
    for domain in contention.probes(found):
        alone = await probe(domain.alone)
        readings = await asyncio.gather(*map(probe, domain.pairs))
        capacity = domain.leaving([each.bytes_per_s for each in readings], alone.bytes_per_s)
        if capacity is not None:
            leaving[domain.tier][domain.domain] = capacity
    return replace(found, leaving=leaving)
