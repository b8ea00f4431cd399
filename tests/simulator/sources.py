"""What the sources of the network and of hardware say, and what they may be taken to say.

A source that changes is taken for what it said before until what it says now is published. So it
has choices, the current one last. What it said for a short time may have been taken in, and be
published after what it says again. A view takes one of each; ``render`` gives what is to be
published of a view, by the pure functions of the product.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railwright_controllers import file_reads
from railwright_controllers.discovery import AGENTS, FabricState
from railwright_controllers.report import fabric as fabric_report
from railwright_controllers.report import node_healths
from railwright_topology import fabric
from railwright_topology.parts import HardwareReports
from railwright_topology.sources import hardware_documents, labels
from railwright_topology.sources.formats import File

Json = dict[str, Any]
Source = tuple[str, str]
"""One of NODE, AGENT and FILE, and a name."""
View = Mapping[Source, str | None]
"""What each source says: the labels of a node, the document of an agent (both as JSON), the content
of a file; None if there is none."""

NODE, AGENT, FILE = "node", "agent", "file"
VIEWS_MAX = 1 << 14
"""Of more views nothing is compared."""
UNDER_WAY_S = 90.0
"""How long after a change what a source said before it may still be under way to be published."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """What is to be published: fields of the Fabric's status, and the spec of each NodeHealth."""

    status: Mapping[str, Any]
    healths: Mapping[str, Json]


class Sources:
    """All sources, each with its choices. ``clock`` is virtual seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._choices: dict[Source, list[str | None]] = {}
        self._said_until_s: dict[tuple[Source, str | None], float] = {}
        self._missing_until_s: dict[Source, float] = {}
        self._rendered: dict[object, Rendering] = {}

    def __repr__(self) -> str:
        return f"<Sources {len(self._choices)} views={self.views_count}>"

    @property
    def all(self) -> Collection[Source]:
        """Of each kind."""
        return self._choices.keys()

    def put(self, source: Source, found: str | None) -> None:
        """A source says this from now on."""
        choices = self._choices.setdefault(source, [None])
        if choices[-1] != found:
            self._said_until_s[source, choices[-1]] = self._clock()
            self._choices[source] = [each for each in choices if each != found] + [found]

    def add(self, source: Source, found: str | None) -> None:
        """A source may be taken to say this too."""
        choices = self._choices.setdefault(source, [None])
        if found not in choices:
            choices.insert(0, found)

    def keep_missing(self, source: Source) -> None:
        """That it may be taken to say nothing may still be under way to be published."""
        self._missing_until_s[source] = self._clock()

    def current(self, source: Source) -> str | None:
        """What a source says now."""
        return self._choices.get(source, [None])[-1]

    def choices(self, source: Source) -> list[str | None]:
        """What a source may be taken to say."""
        return self._choices.get(source, [None])

    def settle(self, uncertain: frozenset[Source]) -> None:
        """What all sources say now is published; those that are ``uncertain`` may yet be taken for
        what they said before."""
        since_s = self._clock() - UNDER_WAY_S
        for source, choices in self._choices.items():
            if source not in uncertain:
                until_s = {
                    each: self._said_until_s.get((source, each), -math.inf) for each in choices
                }
                until_s[None] = self._missing_until_s.get(source, -math.inf)
                choices[:-1] = [each for each in choices[:-1] if until_s[each] > since_s]

    @property
    def views_count(self) -> int:
        """How many views there are."""
        return math.prod(map(len, self._choices.values()))

    def views(self, *, uncertain: frozenset[Source] | None = None) -> Iterator[View]:
        """All views, or those in which all sources but some say what they say now."""
        chosen = {
            source: choices if uncertain is None or source in uncertain else choices[-1:]
            for source, choices in self._choices.items()
        }
        for each in itertools.product(*chosen.values()):
            yield dict(zip(chosen, each, strict=True))

    def render(self, view: View) -> Rendering:
        """What is to be published of a view."""
        key = frozenset(view.items())
        if key not in self._rendered:
            self._rendered[key] = _rendering(view)
        return self._rendered[key]


def read_labels(found: Mapping[str, str]) -> str:
    """The labels of a node that say where it is."""
    return json.dumps(labels.read_of(found), sort_keys=True)


def of_hosts(source: Source, content: str, hosts: Container[str]) -> str:
    """A file with the cables of these hosts alone; of another kind, or one that is not valid, as
    it is."""
    if not source[1].endswith("lldp.json"):
        return content
    try:
        found = json.loads(content)
    except ValueError:
        return content
    return json.dumps({host: its for host, its in found.items() if host in hosts})


def _of_kind(view: View, kind: str) -> dict[str, str]:
    return {name: its for (each, name), its in view.items() if each == kind and its is not None}


def _rendering(view: View) -> Rendering:
    labelled = {node: json.loads(its) for node, its in _of_kind(view, NODE).items()}
    documents = {
        node: hardware_documents.parse(its)
        for node, its in _of_kind(view, AGENT).items()
        if node in labelled
    }
    files = []
    for path, content in _of_kind(view, FILE).items():
        place, _, name = path.partition("/")
        files.append((File(place, name, content), ""))
    read = file_reads.read_all(files, ())
    reports = HardwareReports(
        AGENTS,
        {node: hardware_documents.of(its) for node, its in documents.items()},
        {node: its.benchmarks for node, its in documents.items() if its.benchmarks},
    )
    facts = [each for one in read for each in one.facts]
    found = fabric.of(labelled.keys(), [*labels.source_reports(labelled, ()), reports, *facts])
    summary = fabric_report.summarize(FabricState(found, read))
    status = dict(summary.status) | {"topology": summary.topology}
    return Rendering(_stored(status), _stored(node_healths.contents(found)))


def _stored(found: Any) -> Any:
    """The values as the API server stores them."""
    if isinstance(found, Mapping):
        return {name: _stored(its) for name, its in found.items() if its is not None}
    if isinstance(found, list | tuple):
        return [_stored(its) for its in found]
    return found
