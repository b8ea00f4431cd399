"""Run a survey from a command line that can reach all agents; it need not run on a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from railwright_agent import prober
from railwright_agent.handshake import ProbeError, ProbeKind
from railwright_topology.probing import findings, rounds
from railwright_topology.probing.contention import CONTENTION_S
from railwright_topology.probing.findings import Findings
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.rounds import Pair
from railwright_topology.probing.survey import Survey

Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class SurveyedAgents:
    """The address of each node's agent, and the token that theirs are derived from."""

    addresses: Mapping[str, str]
    port: int
    token: str


async def run(
    agents: SurveyedAgents, at_once: int, seconds: float, *, log: Log, uplinks: bool = False
) -> Findings:
    """Probe until no pair is left; ``at_once`` pairs at a time, no node in two of them. With
    ``uplinks`` also how many nodes can send out of each domain at once."""
    survey = Survey(sorted(agents.addresses), at_once=at_once)
    failed: Counter[bool] = Counter()

    async def probe(pair: Pair) -> Reading:
        reading = await _reading(agents, pair, seconds, log)
        failed[reading == Reading()] += 1
        return reading

    await rounds.carry_out(survey, probe)
    found = findings.of(survey)
    log(f"{found.pairs} pairs, {failed.total()} probes, {failed[True]} of them failed")
    if not uplinks:
        return found
    return await rounds.with_uplinks(
        found, lambda pair: _reading(agents, pair, CONTENTION_S, log, ProbeKind.CROWD)
    )


async def _reading(
    agents: SurveyedAgents, pair: Pair, seconds: float, log: Log, kind: ProbeKind = ProbeKind.TASK
) -> Reading:
    source, target = (agents.addresses[node] for node in pair)
    try:
        found = await prober.send(
            source, target, agents.port, agents.token, seconds=seconds, kind=kind
        )
    except ProbeError as error:
        log(f"{' -> '.join(pair)}: {error}")
        return Reading()
    return Reading(found.latency_s, found.bytes_per_s)
