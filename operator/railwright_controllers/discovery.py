"""Discovery: assemble the fabric from its sources, again whenever one of them changes.

There are three kinds of sources: the labels of nodes, the files of the site, and the reports of
node agents about hardware and benchmarks. Files are parsed and the fabric is assembled in threads,
as either can take seconds. Scheduling waits for neither: it uses what the Fabric object has.

A file that breaks a rule is refused, with its line and the rule. Its last valid content stays in
use for the life of this process. After a restart what was published stays until the file is valid
again (``unread_files``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

from railwright_controllers import file_reads
from railwright_controllers.file_reads import FileRead
from railwright_controllers.unread_files import UnreadFiles
from railwright_controllers.watch.fabric import FabricCache
from railwright_controllers.watch.files import FilesRecord
from railwright_topology import fabric, slow_devices
from railwright_topology.fabric import Fabric
from railwright_topology.parts import Benchmarks, HardwareReport, HardwareReports
from railwright_topology.sources import hardware_documents, labels
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError
from railwright_watch.node_healths import HealthRecord
from railwright_watch.nodes import NodeRecord

logger = logging.getLogger(__name__)

AGAIN_S = 60.0
"""The pause before a failed assembly is tried again."""

PAUSE_S, PAUSE_FACTOR, PAUSE_S_MAX = 0.2, 2.0, 2.0
"""The shortest pause between two assemblies, in seconds, so that nodes that change one by one are
one change; as a multiple of the time of the last assembly; and the longest."""

SLOW_S = 60.0
"""A read of files and an assembly that take longer are a problem of the Fabric."""

TICK_S = 1.0
"""How often the levels that the site configured are compared with those of the last assembly."""

GATHERED_S = 3.0
"""How long reports are gathered before an assembly: agents of a whole site report one by one."""

SILENT_S = 900.0
"""An agent without a report for this long is silent. It reports about every three minutes."""

AGENTS = "agents"
"""The name of the source that all agents are together."""

CAUGHT_UP_S = 300.0
"""How long controllers that started again wait for the agents that reported before: agents that
were removed never report."""

STARTING_S = 60.0
"""How long they wait for the agents of nodes that are not Ready, which may just be starting."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FabricState:
    """The fabric, and what it was assembled from: the files, the nodes by name with their UIDs, and
    the nodes whose agents had reported. ``problem`` is why the fabric is not up to date; empty if
    it is."""

    fabric: Fabric
    files: tuple[FileRead, ...] = ()
    problem: str = ""
    node_uids: Mapping[str, str] = field(default_factory=dict)
    reported: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """The number of agents whose reports this process has, the nodes of silent ones, and the nodes
    whose last document was refused, each with the rule that it broke, unless that was so long ago.
    ``oldest_age_s`` is the age of the oldest one of their last reports; None without any."""

    reporting: int
    silent: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()
    oldest_age_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Report:
    """A parsed document, its digest, and its digest without the benchmarks."""

    digest: bytes
    shared: bytes
    hardware_reports: tuple[HardwareReport, ...]
    benchmarks: Benchmarks


@dataclass(slots=True)
class _Agent:
    """The last report of one node's agent. ``benchmarks`` stay until others replace them."""

    received_s: float = 0.0
    refused: str = ""
    report: _Report | None = None
    benchmarks: Benchmarks = ()

    def take(self, report: _Report) -> bool:
        """Store the report; return whether the hardware or a benchmark changed."""
        last, benchmarks = self.report, self.benchmarks
        self.refused = ""
        if last is not None and last.digest == report.digest:
            return False
        self.report, self.benchmarks = (
            report,
            slow_devices.held(benchmarks, report.benchmarks, report.hardware_reports),
        )
        return last is None or last.shared != report.shared or self.benchmarks != benchmarks


@dataclass(eq=False, repr=False)
class Discovery:
    """The fabric, as of the last ``refresh``. ``due`` is set when a source changed, and
    ``refreshed`` after an assembly, for the part that publishes it. Before ``is_assembled`` there
    is nothing to publish."""

    cache: FabricCache
    _: KW_ONLY
    healths: Callable[[], Iterable[HealthRecord]] = tuple
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._agents: dict[str, _Agent] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._files_by_uid: dict[str, FilesRecord] = {}
        self.due = asyncio.Event()
        self.refreshed = asyncio.Event()
        self._read: tuple[FileRead, ...] = ()
        self._unread_files = UnreadFiles()
        self._configured: tuple[str, ...] = ()
        self._gathering: asyncio.TimerHandle | None = None
        self._stale = True
        self._began_s: float | None = None
        self._expected: set[str] = set()
        self._count = 0
        self._reading_since_s: float | None = None
        self._busy_since_s: float | None = None
        self.is_assembled = False
        self.found = FabricState(Fabric())

    def node_changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """Take in a change of a node; None means absent. Most changes do not affect the fabric."""
        if old is not None:
            self._nodes.pop(old.uid, None)
            if new is None:
                self._agents.pop(old.name, None)
        if new is not None:
            self._nodes[new.uid] = new
        if self._labels_read(old) != self._labels_read(new):
            self._again()

    def _labels_read(self, node: NodeRecord | None) -> tuple[str, bool, Labels] | None:
        if node is None:
            return None
        return node.name, node.is_reserved, labels.read_of(node.labels, self.cache.levels)

    def files_changed(self, old: FilesRecord | None, new: FilesRecord | None) -> None:
        """Take in a change of a ConfigMap with files; None means absent."""
        if old is not None:
            self._files_by_uid.pop(old.uid, None)
        if new is not None:
            self._files_by_uid[new.uid] = new
        self.due.set()

    def is_given(self, name: str) -> bool:
        """Whether a ConfigMap with files has this name."""
        return any(record.name == name for record in self._files_by_uid.values())

    async def receive_report(self, node: str, document: str) -> bool:
        """Store the report of a node's agent; return whether the node exists. Raises WiringError
        for a document that breaks a rule: the report before it stays."""
        if not self._has_node(node):
            return False
        agent = self._agents.setdefault(node, _Agent())
        agent.received_s = self.clock()
        try:
            report = await self._parse(document)
        except WiringError as refused:
            agent.refused = str(refused)
            raise
        if not self._has_node(node):  # The node was deleted while its document was parsed.
            return False
        if self._agents.setdefault(node, agent).take(report) and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHERED_S, self._gathered)
        return True

    async def _parse(self, document: str) -> _Report:
        digest = _digest(document)
        for held in self._reports():
            if held.digest == digest:
                return held
        report = await asyncio.to_thread(_parse_report, document, digest)
        same = (held.hardware_reports for held in self._reports() if held.shared == report.shared)
        return replace(report, hardware_reports=next(same, report.hardware_reports))

    def _reports(self) -> Iterator[_Report]:
        return (agent.report for agent in self._agents.values() if agent.report is not None)

    def _has_node(self, name: str) -> bool:
        return any(each.name == name for each in self._nodes.values())

    def agents(self) -> AgentSummary:
        """Summarize which agents have reported, are silent, or had a document refused."""
        now_s = self.clock()
        oldest_s = now_s - SILENT_S
        reporting = {node: agent for node, agent in self._agents.items() if agent.report}
        silent = (node for node, agent in reporting.items() if agent.received_s < oldest_s)
        first_s = min((agent.received_s for agent in reporting.values()), default=now_s)
        refused = (
            (node, agent.refused)
            for node, agent in self._agents.items()
            if agent.refused and agent.received_s >= oldest_s
        )
        return AgentSummary(
            len(reporting),
            tuple(sorted(silent)),
            tuple(sorted(refused)),
            oldest_age_s=now_s - first_s if reporting else None,
        )

    @property
    def is_caught_up(self) -> bool:
        """Whether the fabric has the reports of all agents that reported before the process
        started, according to the sources of NodeHealths. If the Fabric counted more, as the last
        process may have ended before it wrote the NodeHealths, any node may have one of them; with
        fewer nodes than then, the missing ones had it. Those of nodes that are not Ready do not
        count, and after ``CAUGHT_UP_S`` none does."""
        if self._began_s is None:
            return False
        age_s = self.clock() - self._began_s
        able = {each.name for each in self._nodes.values() if each.ready or age_s <= STARTING_S}
        awaited = able & self._expected
        if self._count > len(self._expected):
            awaited |= able - {node for node, its in self._agents.items() if its.report is None}
        has_all = self.is_assembled and awaited <= self.found.reported
        return has_all or age_s > CAUGHT_UP_S

    def unread_files(self) -> tuple[str, ...]:
        """The files because of which all that was published stays."""
        return self._unread_files.among(self.found.files)

    @property
    def delay(self) -> str:
        """Why the fabric may be out of date; empty if nothing takes unusually long."""
        since = (self._reading_since_s, self._busy_since_s)
        if all(each is None or self.clock() - each < SLOW_S for each in since):
            return ""
        return f"files are being read, or the fabric is assembled, for more than {SLOW_S:.0f} s"

    async def run(self) -> None:
        """Read files and assemble the fabric as sources change, until cancelled. Other sources wait
        for files that are being read only before the first assembly. Raises what a read raises."""
        reading = asyncio.create_task(self.read_files())
        try:
            await reading
            while True:
                if self.due.is_set() and reading.done():
                    reading = asyncio.create_task(self.read_files())
                done, _ = await asyncio.wait([reading], timeout=TICK_S)
                for each in done:
                    each.result()
                started_s = self._busy_since_s = self.clock()
                await self.refresh()
                self._busy_since_s = None
                pause_s = PAUSE_FACTOR * (self.clock() - started_s)
                await asyncio.sleep(min(max(PAUSE_S, pause_s), PAUSE_S_MAX))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self.due.wait()
        finally:
            reading.cancel()

    async def read_files(self) -> None:
        """Read the files that changed."""
        self.due.clear()
        self._reading_since_s = self.clock()
        files_given = self._files_by_uid.values()
        files = [(file, record.time) for record in files_given for file in record.files]
        read = await asyncio.to_thread(file_reads.read_all, files, self._read)
        self._unread_files.read(read)
        self._stale |= read != self._read
        self._read = read
        self._reading_since_s = None

    async def refresh(self) -> None:
        """Assemble the fabric again if a source changed. If this fails, the last fabric stays, and
        ``problem`` says so."""
        if self._began_s is None:
            self._began_s = self.clock()
            there = {each.name for each in self._nodes.values()}
            sources = {each.name: each.content.get("sources", ()) for each in self.healths()}
            self._expected = there & {name for name, its in sources.items() if AGENTS in its}
            self._unread_files.started({*self.cache.sources}.union(*sources.values()))
            published = self.cache.published
            gone = max(0, published.get("nodes", 0) - len(self._nodes))
            self._count = (published.get("agents") or {}).get("nodes", 0) - gone
        configured = self.cache.levels
        if self._stale or self._configured != configured:
            self._stale, self._configured = False, configured
            await self._assemble(configured)

    async def _assemble(self, configured: tuple[str, ...]) -> None:
        nodes, read = {node.name: node for node in self._nodes.values()}, self._read
        reported = frozenset(node for node, agent in self._agents.items() if agent.report)
        agents = HardwareReports(
            AGENTS,
            {
                node: agent.report.hardware_reports
                for node, agent in self._agents.items()
                if agent.report
            },
            {node: agent.benchmarks for node, agent in self._agents.items() if agent.benchmarks},
        )
        try:
            found = await asyncio.to_thread(
                _put_together,
                nodes,
                read,
                agents,
                configured=configured,
                before=self.found,
            )
        except Exception as error:
            logger.exception("fabric assembly failed", extra={"error": str(error)})
            problem = f"the last fabric stays in use: {type(error).__name__}"
            self.found = replace(self.found, problem=problem)
            # A lack of memory or threads may be gone by then.
            asyncio.get_running_loop().call_later(AGAIN_S, self._again)
        else:
            node_uids = {name: node.uid for name, node in nodes.items()}
            self.found = replace(found, node_uids=node_uids, reported=reported)
            self._unread_files.assembled(found.fabric, read)
            self.is_assembled = True
        self.refreshed.set()

    def _gathered(self) -> None:
        self._gathering = None
        self._again()

    def _again(self) -> None:
        self._stale = True
        self.due.set()


def _put_together(
    nodes: Mapping[str, NodeRecord],
    read: tuple[FileRead, ...],
    agents: HardwareReports,
    *,
    configured: tuple[str, ...],
    before: FabricState,
) -> FabricState:
    facts = [each for one in read for each in one.facts]
    labelled = {name: node.labels for name, node in nodes.items() if not node.is_reserved}
    everything = [*labels.source_reports(labelled, configured), agents, *facts]
    found = fabric.of(nodes.keys(), everything, before.fabric)
    return FabricState(before.fabric if found == before.fabric else found, read)


def _parse_report(document: str, digest: bytes) -> _Report:
    read = hardware_documents.parse(document)
    shared = _digest(hardware_documents.written(Document(read.hardware_reports, read.refused)))
    return _Report(digest, shared, hardware_documents.of(read), read.benchmarks)


def _digest(document: str) -> bytes:
    return hashlib.sha256(document.encode()).digest()
