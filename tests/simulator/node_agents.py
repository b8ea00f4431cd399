"""Node agents: each reports the hardware of its node to the controllers, as the real ones do.

They read their hardware about once a minute, report a change at once and the same again with every
third reading, and try again after a failure. A restarted agent measures its devices some time
later, as the node is busy.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from railwright_agent.reporting import AGAIN_S, AGAIN_S_MAX, READ_S, REPORT_EVERY, TIMEOUT_S
from railwright_api import names
from railwright_controllers.agents.server import PATH
from railwright_controllers.wiring import AGENT as ACCOUNT
from railwright_kube.tokens import Bearer
from railwright_topology.parts import (
    DeviceBenchmark,
    Distance,
    HardwareReport,
    Kind,
    Layer,
    Part,
    pair,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document
from simulator.controllers_process import ControllersProcess
from simulator.machines import Machines
from simulator.processes import NAMESPACE
from simulator.sources import AGENT, Sources
from simulator.virtual_loop import VirtualLoop

MODEL = "10de:20b2"
GPUS = ("0000:17:00.0", "0000:3b:00.0")
ADAPTERS = ("0000:18:00.0", "0000:3c:00.0")
BYTES_PER_S = 50_000_000_000
FLOP_PER_S = 700_000_000_000_000
SLOW = 0.6
MEASURED_S_MAX = 600.0
"""How long after its start an agent measures, at most."""

CERTAIN_S = 150.0
"""An agent that was not reached for a while has reported again after this time, and its node is
Ready."""


@dataclass(slots=True)
class _Agent:
    """The agent of a node. ``down_until_s`` is when it runs again, ``measured_s`` when it has
    measured; what its node has: ``is_slow`` and ``lost_cable``."""

    down_until_s: float = 0.0
    measured_s: float = 0.0
    is_slow: bool = False
    lost_cable: bool = False
    certain_s: float = 0.0
    reported: str = ""


class NodeAgents:
    """The agents of all nodes. ``route`` returns where a connection to the Service of the
    controllers arrives."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: Random,
        machines: Machines,
        sources: Sources,
        *,
        route: Callable[[], ControllersProcess | None],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._machines = machines
        self._sources = sources
        self._route = route
        self._agents: dict[str, _Agent] = {}

    def add(self, node: str) -> None:
        """The agent of a new node."""
        self._agents[node] = agent = _Agent()
        self._loop.create_task(self._run(node, agent))

    def remove(self, node: str) -> None:
        """The node is gone."""
        self._agents.pop(node, None)
        self._sources.put((AGENT, node), None)

    def refresh(self) -> frozenset[str]:
        """Compare what agents say with which of them run and are reached; the nodes of those that
        the controllers may not have received yet."""
        now_s, uncertain = self._loop.time(), set[str]()
        for node, agent in self._agents.items():
            if self._is_silent(node, agent):
                self._sources.put((AGENT, node), None)
                agent.certain_s = now_s + CERTAIN_S
            else:
                self._sources.put((AGENT, node), self._current(agent))
            if now_s < agent.certain_s:
                uncertain.add(node)
        return frozenset(uncertain)

    def change(self) -> str:
        """A device of a node becomes slow or a cable is pulled, or that is repaired: of most nodes
        it would be as it has to be."""
        node, fault = self._any(), self._rng.choice(("is_slow", "lost_cable"))
        broken = [each for each, agent in self._agents.items() if getattr(agent, fault)]
        if not node:
            return ""
        changed = broken[0] if broken else node
        setattr(self._agents[changed], fault, not broken)
        return f"{changed} {fault}={not broken}"

    def stop(self, seconds: float) -> str:
        """An agent does not run for so long; then it begins without benchmarks."""
        node = self._any()
        if not node:
            return ""
        agent, now_s = self._agents[node], self._loop.time()
        agent.down_until_s = now_s + seconds
        agent.measured_s = agent.down_until_s + self._rng.uniform(0.0, MEASURED_S_MAX)
        agent.certain_s = agent.down_until_s + CERTAIN_S
        agent.reported = ""
        return f"{node} {seconds:.0f} s"

    def end(self) -> None:
        """All run, and have measured."""
        for agent in self._agents.values():
            agent.down_until_s = agent.measured_s = min(agent.down_until_s, self._loop.time())

    def _any(self) -> str:
        return self._rng.choice(sorted(self._agents)) if self._agents else ""

    def _is_silent(self, node: str, agent: _Agent) -> bool:
        is_reached = self._machines.is_reached(node)
        return not is_reached or self._loop.time() < agent.down_until_s

    def _current(self, agent: _Agent) -> str:
        is_measured = self._loop.time() >= agent.measured_s
        return _document(
            is_slow=agent.is_slow, lost_cable=agent.lost_cable, is_measured=is_measured
        )

    async def _run(self, node: str, agent: _Agent) -> None:
        """One agent, as ``railwright_agent.reporting`` is."""
        reads, failures = 0, 0
        while self._agents.get(node) is agent:
            reads += 1
            if not self._is_silent(node, agent):
                document = self._current(agent)
                if document != agent.reported or reads >= REPORT_EVERY:
                    self.refresh()
                    if await self._is_taken(node, document):
                        agent.reported, reads, failures = document, 0, 0
                    else:
                        failures += 1
                        pause_s = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(failures, 8) / 2)
                        await asyncio.sleep(self._rng.uniform(0.5, 1.5) * pause_s)
                        continue
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * READ_S)

    async def _is_taken(self, node: str, document: str) -> bool:
        process = self._route()
        if process is None:
            return False
        bearer = Bearer("", f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}", node, (names.GROUP,))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await process.post(PATH, bearer, document.encode())
        except TimeoutError:
            return False
        return response.status == 200


@functools.cache
def _document(*, is_slow: bool, lost_cable: bool, is_measured: bool) -> str:
    """Two accelerators, each with an adapter beside it."""
    gpus = tuple(
        Part(gpu, Kind.ACCELERATOR, gpu, number, model=MODEL) for number, gpu in enumerate(GPUS)
    )
    adapters = tuple(
        Part(
            adapter,
            Kind.ADAPTER,
            adapter,
            names=(f"mlx5_{number}", f"ens{number}f0"),
            model="15b3:1021",
            bytes_per_s=BYTES_PER_S,
            layer=Layer.INFINIBAND,
            up=not (lost_cable and number == 1),
        )
        for number, adapter in enumerate(ADAPTERS)
    )
    distances = {
        pair(gpu, part): Distance.SWITCH if at == number else Distance.SYSTEM
        for at, gpu in enumerate(GPUS)
        for number, part in enumerate(ADAPTERS)
    } | {pair(*GPUS): Distance.SYSTEM}
    report = HardwareReport("sysfs", Provenance.SEEN, (*gpus, *adapters), distances=distances)
    benchmarks = tuple(
        DeviceBenchmark(
            gpu,
            MODEL,
            "torch",
            flop_per_s=int(FLOP_PER_S * (SLOW if is_slow and number == 0 else 1)),
            memory_bytes_per_s=2_900_000_000_000,
        )
        for number, gpu in enumerate(GPUS)
    )
    return hardware_documents.written(
        Document((report,), benchmarks=benchmarks if is_measured else ())
    )
