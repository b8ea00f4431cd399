"""An agent stands by while the operator surveys: it answers probes, and asks for errands, each of
which is to measure another node. Nothing listens at other times.

The token that others' keys are derived from, and the key for each errand, come with the operator's
answers. An agent that stands by runs no errands of anybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from asyncio import Server
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any

from railwright_agent import handshake, prober
from railwright_agent.handshake import ProbeError
from railwright_agent.responder import Responder
from railwright_agent.telling import RefusedError, Teller
from railwright_topology import inside
from railwright_topology.parts import Look, Role
from railwright_topology.probing import addresses as probeable

PATH = "/v1/errands"
ANSWER_S = 60.0
"""The operator answers after forty seconds though there is nothing to do."""
AGAIN_S = 5.0
FAILURES_MAX = 12
"""After so many in a row it stands by no more, until it is told to again."""

Json = dict[str, Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs something in the loop that answers probes, and waits for it."""


def rail(looks: Iterable[Look], networks: Collection[str]) -> str | None:
    """The address of the first of this machine's rails that has one in these networks."""
    its = inside.of(looks)
    rails = sorted(its.of_role(Role.RAIL), key=lambda part: its.placed[part.id].rail or 0)
    addresses = (prober.address_of(name) for part in rails for name in part.names)
    within = (each for each in addresses if each and probeable.within(each, networks))
    return next(within, None)


class Standby:
    """Stands by in a thread, while the agent goes on telling."""

    def __init__(self, teller: Teller, port: int, say: Callable[[str], object]) -> None:
        self._teller = teller
        self._port = port
        self._say = say
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Standby {self._thread is not None and self._thread.is_alive()}>"

    def called(self, host: str) -> None:
        """Stand by at this address until the operator needs it no more; at once, if it does."""
        if self._thread is None or not self._thread.is_alive():
            # Nobody waits for it when the agent ends: it may be waiting for an errand itself.
            self._thread = threading.Thread(
                target=self._stand_by, args=(host,), name="errands", daemon=True
            )
            self._thread.start()

    def _stand_by(self, host: str) -> None:
        at = f"{host}:{self._port}"
        if not isinstance(key := self._ask({}).get("key"), str):
            return
        with _loop() as run:
            try:
                responder = Responder(key, runs_errands=False)
                server = run(responder.start(host, self._port))
            except (OSError, ProbeError) as error:
                why = f"probes cannot be answered at {at}: {error}"
                self._say(why)
                self._ask({"unfit": why})
                return
            self._say(f"probes are answered at {at}")
            try:
                self._errands(host, responder, run)
            finally:
                run(_closed(server))

    def _errands(self, host: str, responder: Responder, run: Run) -> None:
        """Ask for errands and go on them, until the operator has no more."""
        said: Json = {}
        while True:
            answer = self._ask({"host": host, "port": self._port, **said})
            if not isinstance(key := answer.get("key"), str):
                return
            # A new leader has a key of its own.
            responder.token = key
            said = run(_done(answer))

    def _ask(self, said: Json) -> Json:
        """The operator's answer; none where it does not answer, though it is asked for a while."""
        for _ in range(FAILURES_MAX):
            try:
                return self._teller.ask(PATH, said, ANSWER_S)
            except RefusedError as refused:
                self._say(f"no errand: {refused}")
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
    """Nobody is answered any more."""
    server.close()
    # Until Python 3.12 a handler of a connection that is cancelled is reported as a mistake.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _done(answer: Json) -> Json:
    """What comes of an errand; nothing where there is none."""
    if "errand" not in answer:
        return {}
    number = {"errand": answer["errand"]}
    try:
        found = await prober.run(handshake.probe_task(answer))
    except ProbeError:
        return number
    return number | dataclasses.asdict(found)
