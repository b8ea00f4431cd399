"""What the controllers publish, in every version: what a source says is never missing.

A field of the Fabric's status, or a NodeHealth, is as it was published before, or as it follows
from a view of the sources (``sources``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from history.invariants import ViolationError
from railwright_controllers.discovery import AGENTS
from railwright_controllers.report.fabric_reporter import OF_PROCESS
from railwright_conversion import interconnects
from simulator.sources import (
    AGENT,
    FILE,
    NODE,
    VIEWS_MAX,
    Rendering,
    Source,
    Sources,
    View,
    of_hosts,
)

Json = Mapping[str, Any]

OF_BENCHMARKS = ("relativeSpeed", "slow")
"""The fields of a NodeHealth that follow from benchmarks alone."""


class PublicationChecks:
    """The checks of one run. ``refresh`` returns the nodes whose agents may be taken for silent."""

    def __init__(self, sources: Sources, *, refresh: Callable[[], frozenset[str]]) -> None:
        self._sources = sources
        self._refresh = refresh
        self._status: Json = {}
        self._healths: dict[str, Json] = {}
        self._deleted: set[str] = set()
        self._has_status = False
        self._is_new = False
        self.compared = self.left_out = 0

    @property
    def status(self) -> Json:
        """The status that was published last."""
        return self._status

    def fabric_deleted(self) -> None:
        """It will be there again without a status."""
        self._has_status = False

    def controllers_began(self, *, invalid: Iterable[Source]) -> None:
        """Those that begin while no status is stored, or read none before it was deleted, have
        nothing of agents that have yet to report to them, nor of files that are ``invalid`` now.
        Until agents have reported, cables count as published, of hosts that are in a domain."""
        self._is_new = True
        for source in (each for each in self._sources.all if each[0] == FILE):
            for content in [*filter(None, self._sources.choices(source))]:
                self._sources.add(source, of_hosts(source, content, self._placed()))
        if not self._has_status:
            for source in (*self._agents(), *invalid):
                self._sources.add(source, None)

    def _placed(self) -> Collection[str]:
        """The nodes in the topology that is published."""
        topology = self._status.get("topology")
        return interconnects.parse(topology).places if topology else ()

    def fabric_stored(self, status: Json) -> None:
        """A version of the Fabric; a new one has nothing of sources at first."""
        fields = {name: its for name, its in status.items() if name not in OF_PROCESS}
        if not fields and not self._has_status:
            return
        uncertain, before = self._refresh(), self._status
        self._check_agents(status)
        if self._sources.views_count > VIEWS_MAX:
            self.left_out += 1
        elif fields != {name: its for name, its in before.items() if name not in OF_PROCESS}:
            self.compared += 1
            renderings = [self._sources.render(view) for view in self._sources.views()]
            for name in sorted(fields.keys() | (before.keys() - OF_PROCESS)):
                self._check_field(name, fields.get(name), before.get(name), renderings)
        self._status, self._has_status = status, True
        self._settle(uncertain)

    def _check_field(self, name: str, found: Any, before: Any, renderings: list[Rendering]) -> None:
        legal = [each.status.get(name) for each in renderings]
        is_kept = name == "topology" and self._is_new and self._is_kept(found, before)
        if found != before and not is_kept and found not in legal:
            raise ViolationError(
                f"I31: status.{name} of the Fabric is {found}, was {before}; the sources say "
                f"{legal[-1]} now"
            )

    def _is_kept(self, found: Json | None, before: Json | None) -> bool:
        """Whether a topology is the one before without nodes that left: controllers that have begun
        publish that until agents have reported."""
        if not found or not before:
            return False
        its, held = interconnects.parse(found), interconnects.parse(before)
        left = held.places.keys() - its.places.keys()
        kept = {node: domains for node, domains in held.places.items() if node not in left}
        is_legal = all(None in self._sources.choices((NODE, each)) for each in left)
        return is_legal and its == replace(held, places=kept)

    def _check_agents(self, status: Json) -> None:
        """The number of agents: of those that reported, and no fewer than surely did."""
        found = (status.get("agents") or {}).get("nodes", 0)
        if found == (self._status.get("agents") or {}).get("nodes", 0):
            return
        choices = [self._sources.choices(each) for each in self._agents()]
        surely = sum(None not in each for each in choices)
        if not surely <= found <= len(choices):
            raise ViolationError(
                f"I31: the Fabric has {found} agents, and {surely} to {len(choices)} report"
            )

    def _agents(self) -> Iterator[Source]:
        return iter([each for each in self._sources.all if each[0] == AGENT])

    def health_stored(self, node: str, spec: Json) -> None:
        """A version of a NodeHealth."""
        uncertain, before = self._refresh(), self._healths.get(node)
        if spec != before:
            if self._sources.views_count > VIEWS_MAX:
                self.left_out += 1
            else:
                self.compared += 1
                legal = [*self._legal_healths(node, before)]
                if spec not in legal:
                    raise ViolationError(
                        f"I31: the NodeHealth of {node} is {spec}, was {before}; expected {legal}"
                    )
        self._healths[node] = spec
        if node in self._deleted:
            self._deleted.discard(node)
            self._sources.keep_missing((AGENT, node))
        self._settle(uncertain)

    def health_deleted(self, node: str) -> None:
        """Somebody deleted it, or it went with its node. Controllers that begin now do not wait for
        its agent. What they publish meanwhile may be stored after its NodeHealth."""
        self._healths.pop(node, None)
        self._deleted.add(node)
        self._sources.add((AGENT, node), None)

    def _legal_healths(self, node: str, before: Json | None) -> Iterator[Json]:
        """What the views give, but those without the report of its own agent where that reported;
        of one without benchmarks, these as they were."""
        for view in self._sources.views():
            document = view.get((AGENT, node))
            if document is None and before is not None and AGENTS in before.get("sources", ()):
                continue
            found = self._sources.render(view).healths.get(node, {})
            if before is not None and document is not None and '"benchmarks"' not in document:
                found = {name: before[name] for name in OF_BENCHMARKS if name in before} | found
            yield found

    def _settle(self, uncertain: frozenset[str]) -> None:
        """What is published is what all sources say now: they are taken for nothing else."""
        silent = frozenset((AGENT, node) for node in uncertain)
        if self._sources.views_count > 1 and self._unpublished(silent) == []:
            self._sources.settle(silent)
            self._is_new = False

    def _unpublished(self, silent: frozenset[Source]) -> list[str]:
        """What differs from what the sources say now; ``silent`` ones may say what they did."""
        differences: list[str] = []
        for view in itertools.islice(self._sources.views(uncertain=silent), VIEWS_MAX):
            differences = [*self._differences(view, silent)]
            if not differences:
                break
        return differences

    def unpublished(self) -> list[str]:
        """What has yet to be published."""
        silent = frozenset((AGENT, node) for node in self._refresh())
        return self._unpublished(silent)

    def _differences(self, view: View, silent: frozenset[Source]) -> Iterator[str]:
        rendering = self._sources.render(view)
        for name, expected in rendering.status.items():
            if self._status.get(name) != expected:
                yield f"status.{name} is {self._status.get(name)}, expected {expected}"
        there = [name for (kind, name), its in view.items() if kind == NODE and its is not None]
        for node in there:
            if (AGENT, node) not in silent:
                found, expected = self._healths.get(node) or {}, rendering.healths.get(node, {})
                if found != expected:
                    yield f"the NodeHealth of {node} is {found}, expected {expected}"
        agents = (self._status.get("agents") or {}).get("nodes", 0)
        if agents < sum(view.get((AGENT, node)) is not None for node in there):
            yield f"{agents} agents"
