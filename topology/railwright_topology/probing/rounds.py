"""A survey carried out: round by round its pairs are measured, by whoever can send one node to
another, until nothing is left to ask.

Thinking about what to ask next takes its time where there are many nodes. It is done in a thread,
so that whoever shares the loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from railwright_topology.probing import contention
from railwright_topology.probing.findings import Findings
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey

Pair = tuple[str, str]
Probe = Callable[[Pair], Awaitable[Reading]]
"""Lets the first node of a pair measure how well it reaches the second; what failed reads empty."""


async def carry_out(
    survey: Survey, probe: Probe, *, goes_on: Callable[[], bool] = lambda: True
) -> None:
    """Measure until nothing is left to ask, or for as long as it ``goes_on``."""
    pairs = await asyncio.to_thread(survey.next_round) if goes_on() else ()
    while pairs:
        readings = await asyncio.gather(*map(probe, pairs))
        results = dict(zip(pairs, readings, strict=True))
        pairs = await asyncio.to_thread(_advance, survey, results, goes_on=goes_on())


def _advance(survey: Survey, results: Mapping[Pair, Reading], *, goes_on: bool) -> tuple[Pair, ...]:
    survey.record(results)
    return survey.next_round() if goes_on else ()


async def with_uplinks(found: Findings, probe: Probe) -> Findings:
    """The same with how many nodes can send out of each domain at once: its uplinks are filled for
    it, one domain after the other."""
    leaving: tuple[dict[str, float], ...] = tuple({} for _ in found.tiers)
    for domain in contention.probes(found):
        alone = await probe(domain.alone)
        readings = await asyncio.gather(*map(probe, domain.pairs))
        capacity = domain.leaving([each.bytes_per_s for each in readings], alone.bytes_per_s)
        if capacity is not None:
            leaving[domain.tier][domain.domain] = capacity
    return replace(found, leaving=leaving)
