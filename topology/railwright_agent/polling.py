"""Poll the controllers for probe tasks during a survey: each task is to measure another node. The
agent answers probes meanwhile; nothing listens at other times. `__main__` starts it.

The token that others' keys are derived from, and the key for each task, come with the controllers'
answers. A polling agent runs no other tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from asyncio import Server
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from railwright_agent import handshake, prober
from railwright_agent.handshake import ProbeError
from railwright_agent.reporting import ControllersClient, ReportRefusedError
from railwright_agent.responder import Responder
from railwright_topology import hardware_inventory
from railwright_topology.parts import AdapterRole, HardwareReport
from railwright_topology.probing import addresses as probeable

PATH = "/v1/probe-tasks"
ANSWER_S = 60.0
"""The controllers answer after forty seconds though there is nothing to do."""
AGAIN_S = 5.0
FAILURES_MAX = 12
"""After so many in a row it stops polling, until the controllers request it again."""

Json = dict[str, Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs something in the loop that answers probes, and waits for it."""


def rail_address(
    hardware_reports: Iterable[HardwareReport], networks: Collection[str]
) -> str | None:
    """The address of the first of this machine's rails that has one in these networks."""
    its = hardware_inventory.of(hardware_reports)
    rails = sorted(its.of_role(AdapterRole.RAIL), key=lambda part: its.placed[part.id].rail or 0)
    addresses = (prober.address_of(name) for part in rails for name in part.names)
    within = (each for each in addresses if each and probeable.within(each, networks))
    return next(within, None)


@dataclass(slots=True, eq=False)
class ProbePoller:
    """Polls in a thread, while the agent goes on reporting."""

    controllers: ControllersClient
    port: int
    log: Callable[[str], object]
    thread: threading.Thread | None = field(default=None, init=False)

    def start(self, host: str) -> None:
        """Poll with this address until the controllers send no key; nothing if it polls already."""
        if self.thread is None or not self.thread.is_alive():
            # A daemon: when the agent ends it may be waiting for a task.
            self.thread = threading.Thread(
                target=self._poll, args=(host,), name="probe-tasks", daemon=True
            )
            self.thread.start()

    def _poll(self, host: str) -> None:
        at = f"{host}:{self.port}"
        if not isinstance(key := self._poll_once({}).get("key"), str):
            return
        with _loop() as run:
            try:
                responder = Responder(key, runs_tasks=False)
                server = run(responder.start(host, self.port))
            except (OSError, ProbeError) as error:
                why = f"probes cannot be answered at {at}: {error}"
                self.log(why)
                self._poll_once({"unfit": why})
                return
            self.log(f"probes are answered at {at}")
            try:
                self._run_tasks(host, responder, run)
            finally:
                run(_closed(server))

    def _run_tasks(self, host: str, responder: Responder, run: Run) -> None:
        """Poll for tasks and run them, until the controllers have no more."""
        report: Json = {}
        while True:
            answer = self._poll_once({"host": host, "port": self.port, **report})
            if not isinstance(key := answer.get("key"), str):
                return
            # Controllers that started again derive another key.
            responder.token = key
            report = run(_result(answer))

    def _poll_once(self, report: Json) -> Json:
        """The controllers' answer; empty if they do not answer in FAILURES_MAX attempts."""
        for _ in range(FAILURES_MAX):
            try:
                return self.controllers.post(PATH, report, ANSWER_S)
            except ReportRefusedError as refused:
                self.log(f"probe task poll failed: {refused}")
                time.sleep(AGAIN_S)
        return {}


@contextlib.contextmanager
def _loop() -> Iterator[Run]:
    """A loop in a thread of its own, which goes on answering while this one waits."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="probes", daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _closed(server: Server) -> None:
    """Stop answering."""
    server.close()
    # Until Python 3.12 a handler of a connection that is cancelled is reported as a mistake.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _result(answer: Json) -> Json:
    """The result of a task; empty without one."""
    if "probeTask" not in answer:
        return {}
    number = {"probeTask": answer["probeTask"]}
    try:
        found = await prober.run(handshake.probe_task(answer))
    except ProbeError:
        return number
    return number | dataclasses.asdict(found)
