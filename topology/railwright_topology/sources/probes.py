"""Write and read the findings of a survey, which are a source like any other.

    {"version": 1, "pairs": 42,
     "tiers": [{"domains": {"near node-1": ["node-1", "node-4"], "near node-2": ["node-2"]},
                "leaving": {"near node-1": 1.5},
                "pairs": 31, "latency_s": 6.1e-05, "bytes_per_s": 1.2e+10, "gap": null}, …],
     "strange": ["node-7: no probe of it reached anybody"],
     "measured": {"2026-11-22T20:00:00Z": ["node-1", "node-4"]}}

Tiers are listed from the nearest outwards. How many pairs were measured, and what at each tier, is
there for people; read is who stands together, how many nodes can send out of a domain at once where
that was measured, and when each node was. A domain has no name but that of its first node.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime

from railwright_topology.grouping import group
from railwright_topology.probing.findings import Findings
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import TreeNode
from railwright_topology.wiring import WiringError

SOURCE = "probes"
VERSION = 1

TIME = "%Y-%m-%dT%H:%M:%SZ"
SENDERS_MIN, SENDERS_MAX = 0.001, 1_000_000
"""How many nodes can send out of a domain at once."""
_SENDERS = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?")

_FIELDS = ("version", "pairs", "tiers", "strange", "measured")
_TIER_FIELDS = ("domains", "leaving", "pairs", "latency_s", "bytes_per_s", "gap")


def written(found: Findings, times: Mapping[str, int]) -> str:
    """As it is read again, with when each node was measured, in seconds since 1970."""
    leaving = found.leaving or ({},) * len(found.tiers)
    tiers = [
        {
            "domains": _by_value({node: f"near {first}" for node, first in domains.items()}),
            "leaving": {
                f"near {first}": max(SENDERS_MIN, round(senders, 3))
                for first, senders in each.items()
            },
            "pairs": figures.pairs,
            "latency_s": figures.latency_s,
            "bytes_per_s": figures.bytes_per_s,
            "gap": figures.gap,
        }
        for domains, figures, each in zip(found.tiers, found.figures, leaving, strict=True)
    ]
    measured = {node: datetime.fromtimestamp(s, UTC).strftime(TIME) for node, s in times.items()}
    survey = {
        "version": VERSION,
        "pairs": found.pairs,
        "tiers": tiers,
        "strange": found.strange,
        "measured": _by_value(measured),
    }
    return json.dumps(survey, indent=1)


def parse(text: str) -> SourceReport:
    """Read it. A tier that breaks a rule is left out. Raises WiringError where it is no survey."""
    omissions = Omissions(SOURCE)
    survey = documents.read_versioned(text, omissions, "a survey", _FIELDS)
    tiers: list[dict[str, str]] = []
    leaving: list[dict[str, float]] = []
    for each in survey["tiers"].each("tiers"):
        with omissions.part():
            if len(tiers) == trees.TIERS_MAX:
                raise each.error(f"is past {trees.TIERS_MAX} tiers: it is left out")
            record = each.fields("a tier", _TIER_FIELDS)
            domains = trees.members(_domains(record["domains"]), omissions)
            if tiers:
                _refuse_split(tiers[-1], domains, each)
            tiers.append(domains)
            senders = functools.partial(_senders, domains={*domains.values()})
            leaving.append(record.get("leaving", senders, {}))
    if not tiers and (sentences := omissions.sentences) and survey["tiers"].content:
        raise WiringError(SOURCE, 0, sentences[0])
    strange = survey.some("strange", lambda value: value.content, "sentences")
    times: dict[str, int] = survey.get("measured", _times, {})
    return SourceReport(
        SOURCE,
        Provenance.MEASURED,
        tuple(tiers),
        strange=(
            *(content for content in strange if isinstance(content, str)),
            *omissions.sentences,
        ),
        leaving=tuple(leaving),
        times=times,
    )


def _by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    return group((value, key) for key, value in sorted(values.items()))


def _senders(value: Value, domains: Set[str]) -> dict[str, float]:
    """How many nodes can send out of a domain at once, of those where that is known."""
    found: dict[str, float] = {}
    what = f"how many nodes can leave at once, {SENDERS_MIN} to {SENDERS_MAX}"
    for name, number in value.entries("domains").items():
        with value.omissions.part():
            if name not in domains:
                raise number.error(f"{name[:80]!r} is no domain of this tier")
            if not 0 < (senders := float(number.match(_SENDERS, what))) <= SENDERS_MAX:
                raise number.unexpected(what)
            found[name] = senders
    return found


def _times(value: Value) -> dict[str, int]:
    found: dict[str, int] = {}
    for text, nodes in value.entries("times and the nodes that were measured then").items():
        with value.omissions.part():
            try:
                at_s = int(datetime.strptime(text, TIME).replace(tzinfo=UTC).timestamp())
            except ValueError:
                rule = f"{text[:80]!r} is no time such as 2026-11-22T20:00:00Z"
                raise nodes.error(rule) from None
            found |= dict.fromkeys(nodes.some("nodes", _node), at_s)
    return found


def _domains(value: Value) -> Iterator[TreeNode]:
    for name, nodes in value.entries("domains and their nodes").items():
        with value.omissions.part():
            yield TreeNode(nodes.line, name, nodes=nodes.some("nodes", _node))


def _node(value: Value) -> str:
    return value.text("a node")


def _refuse_split(inner: Mapping[str, str], outer: Mapping[str, str], value: Value) -> None:
    around: dict[str, str] = {}
    for node, domain in inner.items():
        if node in outer and around.setdefault(domain, outer[node]) != outer[node]:
            rule = f"{domain!r} of the tier inside lies in {around[domain]!r} and {outer[node]!r}"
            raise value.error(rule)
