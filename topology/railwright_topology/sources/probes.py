"""What a survey by probes has found, written down for whoever holds it against other sources.

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

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from railwright_topology.accounts import Account, Basis
from railwright_topology.probing.findings import Findings
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import Switch
from railwright_topology.wiring import WiringError

SOURCE = "probes"
VERSION = "1"

TIME = "%Y-%m-%dT%H:%M:%SZ"
ROOM_MIN, ROOM_MAX = 0.001, 1_000_000
_ROOM = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?")

_FIELDS = ("version", "pairs", "tiers", "strange", "measured")
_REQUIRED = ("version", "tiers")
_TIER_FIELDS = ("domains", "leaving", "pairs", "latency_s", "bytes_per_s", "gap")


def written(found: Findings, times: Mapping[str, int]) -> str:
    """As it is read again, with when each node was measured, in seconds since 1970."""
    rooms = found.leaving or ({},) * len(found.tiers)
    tiers = [
        {
            "domains": _members(domains),
            "leaving": {
                f"near {first}": max(ROOM_MIN, round(room, 3)) for first, room in leaving.items()
            },
            "pairs": figures.pairs,
            "latency_s": figures.latency_s,
            "bytes_per_s": figures.bytes_per_s,
            "gap": figures.gap,
        }
        for domains, figures, leaving in zip(found.tiers, found.figures, rooms, strict=True)
    ]
    survey = {"version": int(VERSION), "pairs": found.pairs, "tiers": tiers}
    measured: dict[str, list[str]] = {}
    for node, at_s in sorted(times.items()):
        said = datetime.fromtimestamp(at_s, UTC).strftime(TIME)
        measured.setdefault(said, []).append(node)
    return json.dumps({**survey, "strange": found.strange, "measured": measured}, indent=1)


def parse(text: str) -> Account:
    """Read it. A tier that breaks a rule is left out. Raises WiringError where it is no survey."""
    omissions = Omissions(SOURCE)
    survey = documents.read(SOURCE, text, omissions)
    fields = survey.fields("a survey", _FIELDS, omissions)
    for key in _REQUIRED:
        if key not in fields:
            raise survey.error(f"a survey has {', '.join(_REQUIRED)}; {key} is not there")
    if (version := fields["version"].text("a version")) != VERSION:
        omissions.note(fields["version"].line, f"version {version[:16]!r} is read as {VERSION}")
    tiers: list[dict[str, str]] = []
    leaving: list[dict[str, float]] = []
    for each in fields["tiers"].each("tiers"):
        with omissions.part():
            if len(tiers) == trees.TIERS_MAX:
                raise each.error(f"is past {trees.TIERS_MAX} tiers: it is left out")
            domains = _tier(each, omissions)
            if tiers:
                _refuse_split(tiers[-1], domains, each)
            tiers.append(domains)
            leaving.append(_leaving(each, domains, omissions))
    if not tiers and (lost := omissions.sentences) and fields["tiers"].content:
        raise WiringError(SOURCE, 0, lost[0])
    strange = fields["strange"].each("sentences") if "strange" in fields else ()
    said = [each.content for each in strange if isinstance(each.content, str)]
    times = dict(_times(fields["measured"], omissions)) if "measured" in fields else {}
    return Account(
        SOURCE,
        Basis.MEASURED,
        tuple(tiers),
        strange=(*said, *omissions.sentences),
        leaving=tuple(leaving),
        times=times,
    )


def _members(domains: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, first in sorted(domains.items()):
        found.setdefault(f"near {first}", []).append(node)
    return found


def _tier(value: Value, omissions: Omissions) -> dict[str, str]:
    fields = value.fields("a tier", _TIER_FIELDS, omissions)
    if "domains" not in fields:
        raise value.error("a tier has domains")
    return trees.members(_domains(fields["domains"], omissions), omissions)


def _leaving(value: Value, domains: Mapping[str, str], omissions: Omissions) -> dict[str, float]:
    found: dict[str, float] = {}
    leaving = value.entries("a tier").get("leaving")
    with omissions.part():
        for name, said in leaving.entries("domains").items() if leaving else ():
            with omissions.part():
                if name not in domains.values():
                    raise said.error(f"{name[:80]!r} is no domain of this tier")
                text = said.text("how many nodes")
                if not _ROOM.fullmatch(text) or not 0 < float(text) <= ROOM_MAX:
                    rule = f"how many nodes can leave at once, 0.001 to {ROOM_MAX}"
                    raise said.error(f"{text[:80]!r}: {rule}")
                found[name] = float(text)
    return found


def _times(value: Value, omissions: Omissions) -> Iterator[tuple[str, int]]:
    with omissions.part():
        for said, nodes in value.entries("times and the nodes that were measured then").items():
            with omissions.part():
                try:
                    at_s = int(datetime.strptime(said, TIME).replace(tzinfo=UTC).timestamp())
                except ValueError:
                    rule = f"{said[:80]!r} is no time such as 2026-11-22T20:00:00Z"
                    raise nodes.error(rule) from None
                yield from ((node.text("a node"), at_s) for node in nodes.each("nodes"))


def _domains(value: Value, omissions: Omissions) -> Iterator[Switch]:
    for name, said in value.entries("domains and their nodes").items():
        with omissions.part():
            nodes = [node.text("a node") for node in said.each("nodes")]
            yield Switch(said.line, name, nodes=nodes)


def _refuse_split(inner: Mapping[str, str], outer: Mapping[str, str], value: Value) -> None:
    around: dict[str, str] = {}
    for node, domain in inner.items():
        if node in outer and around.setdefault(domain, outer[node]) != outer[node]:
            rule = f"{domain!r} of the tier inside lies in {around[domain]!r} and {outer[node]!r}"
            raise value.error(rule)
