"""Run surveys when nodes are due and idle.

The surveyor chooses pairs of nodes, and agents measure them. The result is joined with the stored
survey and written to a ConfigMap, which is a source of the fabric as any other. So controllers
that start again read it, and do not measure again. The samples of a running survey are stored too,
and the back-off of nodes without a result: a new process continues with the pairs that are missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from random import Random

from railwright_api import names
from railwright_api.fabric import Probing
from railwright_controllers.agents.probe_tasks import ProbeTasks
from railwright_controllers.discovery import Discovery
from railwright_controllers.metrics import DONE, FAILED, SurveyMetrics
from railwright_controllers.surveys import due, progress, stored
from railwright_controllers.surveys.progress import SurveyProgress
from railwright_controllers.surveys.stored import TooLargeError
from railwright_controllers.watch import files
from railwright_controllers.watch.fabric import FabricCache
from railwright_conversion import bounds
from railwright_kube.backoff import Backoff, Pauses
from railwright_kube.errors import RequestFailed
from railwright_topology import surveys
from railwright_topology.fabric import Fabric
from railwright_topology.probing import findings, rounds
from railwright_topology.probing.contention import CONTENTION_S
from railwright_topology.probing.findings import Findings
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey
from railwright_topology.source_reports import SourceReport
from railwright_topology.sources import formats, probes
from railwright_topology.sources.formats import File
from railwright_topology.wiring import WiringError
from railwright_watch.nodes import NodeRecord

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
SETTLED_S = 15.0
"""A survey begins once all due nodes poll and the selection has not changed for this long, as nodes
join one by one."""
PATIENCE_S = 300.0
"""Or once some due nodes have polled for this long: agents report about every three minutes, and
start to poll after a report."""
BETWEEN_S = 300.0
"""From the end of a survey to the start of the next."""
PROGRESS_S = 60.0
"""How often a running survey stores its samples: each time one object of up to a megabyte."""
SURVEY_S_MAX = 3600.0
"""A survey that takes longer ends with the results so far. No survey uses samples that an earlier
process stored longer ago."""
PROBE_S = 0.3
NODES_PER_PAIR, AT_ONCE_MAX = 16, 8
"""One pair for each 16 nodes is measured at a time, as pairs on one link share its bandwidth."""
AGAIN_S, AGAIN_S_MAX = 600.0, 43_200.0
"""A node without a result is measured again after ten minutes, then less often, down to twice a
day."""
NAMED = 3
BUSY_S = 1.0
NOTHING = Findings((), (), (), 0)

Pair = tuple[str, str]


@dataclass(eq=False, repr=False)
class Surveyor:
    """Runs surveys. ``busy`` returns the busy nodes, ``left`` the progress that the process before
    stored; ``keep`` stores files. ``problems`` are the reasons why nodes are not measured.
    ``clock`` is monotonic; ``wall_clock`` is Unix time, as surveys of earlier processes have it."""

    probe_tasks: ProbeTasks
    _: KW_ONLY
    fabric: FabricCache
    discovery: Discovery
    nodes: Mapping[str, NodeRecord]
    busy: Callable[[], Collection[str]]
    left: Callable[[], File | None]
    keep: Callable[[Mapping[str, str]], Awaitable[object]]
    metrics: SurveyMetrics
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._vain: Pauses[str] = Pauses(
            Backoff(AGAIN_S, AGAIN_S_MAX), clock=self.clock, rng=self.rng
        )
        self._keeping: Pauses[str] = Pauses(
            Backoff(CHECK_EVERY_S, BETWEEN_S), clock=self.clock, rng=self.rng
        )
        self._unkept: dict[str, str] = {}
        self._failed = ""
        self._is_restored = self._is_stored = False
        self._uids: Mapping[str, str] = {}
        self._gone: frozenset[str] = frozenset()
        self._left: SurveyProgress | None = None
        self._seen: frozenset[str] = frozenset()
        self._due_since_s: float | None = None
        self._chosen: tuple[str, ...] = ()
        self._first_s = self._changed_s = self._next_s = self.clock()
        self._busy_seen: tuple[float, Collection[str]] = (self._next_s - BUSY_S, ())
        self.problems: tuple[str, ...] = ()

    async def run(self) -> None:
        """Run due surveys until cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                await self.run_due()
            except Exception as error:
                # A failed survey must not end the controllers.
                logger.exception("survey failed", extra={"error": str(error)})
                self.metrics.surveys.labels(FAILED).inc()
                self._over(f"the last survey ended with {type(error).__name__}")

    async def run_due(self) -> None:
        """Run a survey if one is due and may begin."""
        fabric, probing = self.discovery.found.fabric, self.fabric.probing
        nodes = {node.name: node for node in self.nodes.values()}
        ready = {name for name, node in nodes.items() if node.ready}
        if fabric.places.keys() != nodes.keys() or self.discovery.unread_files():
            return  # The fabric of these nodes is not assembled yet, or lacks a file.
        self._restore()
        await self._forget_gone({name: node.uid for name, node in nodes.items()})
        self._forget_emptied()
        due_nodes = await self._due(fabric, probing)
        self.metrics.due.set(len(due_nodes))
        self.probe_tasks.forget_all_but(fabric.places)
        self._vain.forget_unless(lambda node: node in due_nodes)
        self._see(due_nodes)
        if self._unkept and not (self._keeping.over("") and await self._kept()):
            return
        if not due_nodes:
            self.probe_tasks.selected, self._chosen, self.problems = {}, (), ()
            return
        busy = self.busy()
        free = ready - {*busy}
        waiting = {*filter(self._vain.over, due_nodes)}
        idle, least = waiting & free, due.enough(waiting)
        polling = due.chosen(fabric, idle, free, least=least)
        self.probe_tasks.selected = {node: nodes[node].addresses for node in polling}
        self.probe_tasks.networks = probing.networks
        there = self.probe_tasks.there()
        self.problems = tuple(self._hindrances(due_nodes, idle, busy))
        chosen = due.chosen(fabric, idle, there & free, least=least)
        # A node that stopped polling is not waited for.
        if self._may_begin(chosen, all_there=idle <= there | self._seen):
            await self._survey(chosen, probing)

    def _restore(self) -> None:
        """Take over once what an earlier process left: its back-off, and the samples of its
        survey."""
        was_restored, self._is_restored = self._is_restored, True
        file = self.left()
        if was_restored or file is None:
            return
        try:
            found = progress.parse(formats.text(file))
        except WiringError as error:
            logger.warning("survey progress not read", extra={"error": str(error)})
            return
        for node, (failures, until_s) in found.pauses.items():
            self._vain.restore(node, failures, until_s - self.wall_clock())
        self._left = found

    async def _forget_gone(self, uids: Mapping[str, str]) -> None:
        """Take nodes that are gone out of the stored survey, where another machine can get the name
        of one. ``uids`` are those of the Nodes."""
        self._gone |= {name for name, uid in self._uids.items() if uids.get(name) != uid}
        self._uids = uids
        if self._unkept:
            return
        held, gone = self._held(), self._gone
        self._gone = frozenset()
        self._vain.forget_unless(lambda node: node not in gone)
        if held is not None and not held.nodes <= (left := uids.keys() - gone):
            text = await asyncio.to_thread(_joined, NOTHING, held, left, {})
            self._unkept = {stored.RESULT: text}

    def _forget_emptied(self) -> None:
        """All pauses end when somebody empties the ConfigMap, to have all nodes measured again."""
        was_stored, self._is_stored = self._is_stored, self.left() is not None
        if was_stored and not self._is_stored and not self._unkept:
            self._vain.forget_unless(lambda node: False)
            self._left = None

    def _held(self) -> SourceReport | None:
        """The stored survey, also of nodes that are gone."""
        result = f"{names.PROBES}/{stored.RESULT}"
        reads = self.discovery.found.files
        facts = [fact for each in reads if str(each.file) == result for fact in each.facts]
        return next((each for each in facts if isinstance(each, SourceReport)), None)

    async def _due(self, fabric: Fabric, probing: Probing) -> frozenset[str]:
        """The nodes that are to be measured: none that the control plane keeps for itself."""
        reserved = {node.name for node in self.nodes.values() if node.is_reserved}
        return await asyncio.to_thread(due.of, fabric, probing, self.wall_clock()) - reserved

    def _see(self, due_nodes: Collection[str]) -> None:
        """Record the nodes that have polled since nodes are due."""
        there = self.probe_tasks.there()
        self.metrics.polling.set(len(there.intersection(due_nodes)))
        if not due_nodes:
            self._seen, self._due_since_s = frozenset(), None
            return
        if self._due_since_s is None:
            self._due_since_s = self.clock()
        self._seen |= there

    def _may_begin(self, chosen: tuple[str, ...], *, all_there: bool) -> bool:
        """Whether the chosen nodes have waited long enough for others."""
        now_s = self.clock()
        if not self._chosen:
            self._first_s = now_s
        if chosen != self._chosen:
            self._chosen, self._changed_s = chosen, now_s
        if not chosen or now_s < self._next_s:
            return False
        settled = all_there and now_s - self._changed_s >= SETTLED_S
        return settled or now_s - self._first_s >= PATIENCE_S

    def _hindrances(
        self, due_nodes: Collection[str], idle: Collection[str], busy: Collection[str]
    ) -> Iterable[str]:
        if self._failed:
            yield self._failed
        for node, why in sorted(self.probe_tasks.unfit.items()):
            if node in due_nodes:
                yield f"{node}: {why}"
        if not self.discovery.agents().reporting or self._due_since_s is None:
            return  # There are no agents, or no node is due.
        there, of = self.probe_tasks.there(), f"of {len(due_nodes)} nodes that are to be measured"
        early = self.clock() - self._due_since_s < PATIENCE_S
        if not self.discovery.is_given(names.PROBES):
            yield f"no node is measured: there is no ConfigMap {names.PROBES} to store the result"
        expected = self._seen if early else idle
        if absent := [node for node in idle if node in expected and node not in there]:
            yield f"{len(absent)} {of} have no agent that answers: {_named(absent)}"
        if waiting := [node for node in due_nodes if node in busy]:
            yield f"{len(waiting)} {of} are busy: {_named(waiting)}"

    async def _survey(self, chosen: tuple[str, ...], probing: Probing) -> None:
        """Measure, join the result with the stored survey, and store it."""
        if not self.discovery.is_given(names.PROBES):
            return
        started_s = self.clock()
        logger.info("survey started", extra={"nodes": len(chosen)})
        found = await self._measured(chosen, probing)
        took_s = self.clock() - started_s
        placed = {node for tier in found.tiers for node in tier}
        self._over("" if placed else f"the last survey placed none of its {len(chosen)} nodes")
        if not self._goes_on():
            return
        busy = self.busy()
        for node in chosen:
            if node in placed:
                self._vain.succeeded(node)
            elif node not in busy:
                self._vain.failed(node)
        result = {"placed": len(placed), "pairs": found.pairs, "took_s": round(took_s, 1)}
        logger.info("survey finished", extra={"nodes": len(chosen), **result})
        self.metrics.seconds.observe(took_s)
        self.metrics.pairs.inc(found.pairs)
        self.metrics.surveys.labels(DONE if placed else FAILED).inc()
        # Without samples, as the survey is over.
        texts = {files.PROGRESS: self._progress(None)}
        if placed:
            try:
                times = dict.fromkeys(placed, int(self.wall_clock()))
                there = self.discovery.found.fabric.places.keys()
                held = self._held()
                texts[stored.RESULT] = await asyncio.to_thread(_joined, found, held, there, times)
            except WiringError as refused:
                self._over(f"the survey cannot be read back: {refused}", AGAIN_S_MAX)
                return
        self._unkept = texts
        await self._kept()

    async def _measured(self, chosen: tuple[str, ...], probing: Probing) -> Findings:
        at_once = max(1, min(AT_ONCE_MAX, len(chosen) // NODES_PER_PAIR))
        survey = Survey(chosen, at_once=at_once)
        # Once: samples with which a survey raised must not make every survey raise.
        left, self._left = self._left, None
        if left is not None and abs(self.wall_clock() - left.stored_s) < SURVEY_S_MAX:
            await asyncio.to_thread(survey.resume, left.readings())
        begun_s = stored_s = self.clock()

        async def goes_on() -> bool:
            nonlocal stored_s
            if self.clock() - stored_s >= PROGRESS_S:
                await self._store_progress(survey)
                stored_s = self.clock()
            return self._goes_on() and self.clock() - begun_s < SURVEY_S_MAX

        async def ask(pair: Pair) -> Reading:
            for node in pair:
                if node in self._busy_lately():
                    survey.leave_out(node, "it became busy before it was measured")
            return await self._reading(pair, seconds=PROBE_S)

        await rounds.carry_out(survey, ask, goes_on=goes_on)
        found = await asyncio.to_thread(findings.of, survey)
        if probing.uplinks and self._goes_on():
            found = await rounds.with_uplinks(found, self._crowded)
        return found

    async def _store_progress(self, survey: Survey) -> None:
        """Store the samples of a running survey. A failure leaves those before."""
        text = await asyncio.to_thread(self._progress, survey)
        try:
            await self.keep({files.PROGRESS: text})
        except (RequestFailed, TooLargeError) as error:
            logger.warning("survey progress not stored", extra={"error": str(error)})

    def _progress(self, survey: Survey | None) -> str:
        return progress.written(survey, self._vain.held(), wall_s=self.wall_clock())

    def _goes_on(self) -> bool:
        return bool(self.fabric.probing.mode != due.NEVER)

    async def _crowded(self, pair: Pair) -> Reading:
        """One of many concurrent probes. The traffic of a job can cross any uplink."""
        if self._busy_lately():
            return Reading()
        return await self._reading(pair, seconds=CONTENTION_S, crowd=True)

    async def _reading(self, pair: Pair, *, seconds: float, crowd: bool = False) -> Reading:
        if not {*pair}.isdisjoint(self._busy_lately()):
            return Reading()
        reading = await self.probe_tasks.dispatch(pair, seconds=seconds, crowd=crowd)
        self.metrics.probes.labels(FAILED if reading == Reading() else DONE).inc()
        return reading

    def _busy_lately(self) -> Collection[str]:
        """The busy nodes, cached for ``BUSY_S`` as hundreds of probes need them."""
        seen_s, busy = self._busy_seen
        now_s = self.clock()
        if now_s - seen_s >= BUSY_S:
            busy = frozenset(self.busy())
            self._busy_seen = now_s, busy
        return busy

    async def _kept(self) -> bool:
        """Store the pending survey; return whether that succeeded. A failure is retried later."""
        try:
            await self.keep(self._unkept)
        except RequestFailed as error:
            logger.warning("survey not stored", extra={"error": str(error)})
            self.problems = (f"the survey cannot be stored: {error}",)
            self._keeping.failed("")
            return False
        except TooLargeError as error:
            self._over(f"the survey is not stored: {error}", AGAIN_S_MAX)
        self._unkept = {}
        self._keeping.succeeded("")
        return True

    def _over(self, failed: str, pause_s: float = BETWEEN_S) -> None:
        """End a survey, with its problem if it has one."""
        self._failed = failed
        self._chosen, self._next_s = (), self.clock() + pause_s


def _joined(
    found: Findings, held: SourceReport | None, nodes: Collection[str], times: Mapping[str, int]
) -> str:
    """The document to store: the findings, and what is held of other ``nodes``. ``times`` has when
    nodes were measured, in seconds since 1970. Raises WiringError if it exceeds what can be
    read: it would cause the same survey again."""
    if held is not None:
        found = surveys.joined(found, held, nodes)
        times = _times(held, found) | {**times}
    text = probes.written(found, times)
    probes.parse(text)
    return text


def _times(held: SourceReport, joined: Findings) -> dict[str, int]:
    """The times of held nodes in the joined survey; 0 for a node without a time."""
    return {node: held.times.get(node, 0) for tier in joined.tiers for node in tier}


def _named(nodes: Iterable[str]) -> str:
    return bounds.listed(sorted(nodes), NAMED)
