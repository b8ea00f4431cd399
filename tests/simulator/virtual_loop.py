"""An event loop in virtual time: nothing waits, and the same seed gives the same run.

When no callback is ready, the clock jumps to the next timer. There is no file and no socket to wait
for, and work for a thread is done at once. Callbacks belong to the simulated process in whose
context they were scheduled; those of a paused process stay where they are until it goes on, as
after SIGSTOP.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")
"""The name of the simulated process that runs; empty for the world around them."""


COMPUTING_S = 0.02
"""How long the work of a thread takes, before and after it is done, on average."""


class IdleError(Exception):
    """Nothing is ready, and no timer is set: what is awaited can never come."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. Its clock begins at 0 s; ``rng`` draws how long computing takes."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._now_s = 0.0
        self._ready = self._queue = _Ready()
        self._tasks_of: dict[str, dict[asyncio.Task[Any], None]] = {}
        self._selector = _Jump(self._advance)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def process(self, name: str) -> Context:
        """The context of a new simulated process."""
        context = copy_context()
        context.run(PROCESS.set, name)
        return context

    def pause(self, name: str) -> None:
        """Run nothing of this process until it goes on."""
        self._queue.pause(name)

    def resume(self, name: str) -> None:
        """Run what it missed, in order."""
        self._queue.resume(name)

    def resume_all(self) -> None:
        """Let all paused processes go on."""
        for name in self._queue.paused():
            self.resume(name)

    def call_after_steps(self, name: str, steps: int, call: Callable[[], object]) -> None:
        """Call this in place of the step of a process that is so many steps away: wherever one of
        its tasks waits then. It replaces the one before."""
        self._queue.watched = _Watched(name, steps, call)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task of the process whose context it has, or else of the one that creates it."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if context is None:
            context = copy_context()
        its = self._tasks_of.setdefault(context.get(PROCESS, ""), {})
        its[task] = None
        task.add_done_callback(its.pop)
        return task

    async def kill(self, name: str) -> None:
        """End a process: no task of it is left."""
        self.resume(name)
        while tasks := [*self._tasks_of.get(name, ())]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Task[T]:
        """Call the function soon, in this thread. What it computes takes a while."""

        async def call() -> T:
            await asyncio.sleep(self._rng.expovariate(1 / COMPUTING_S))
            found = func(*args)
            await asyncio.sleep(self._rng.expovariate(1 / COMPUTING_S))
            return found

        return self.create_task(call())

    def _advance(self, seconds: float | None) -> None:
        if seconds is None:
            raise IdleError("no callback is ready, and no timer is set")
        self._now_s += seconds

    def _process_events(self, event_list: object) -> None:
        """There is no file to read."""

    def _write_to_self(self) -> None:
        """The loop is never asleep."""


class _Jump:
    """Instead of a selector: advances the clock by the time that the loop would wait."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[object]:
        self._advance(timeout)
        return []


@dataclass(slots=True)
class _Watched:
    """A process, how many of its steps remain, and what is called then."""

    name: str
    steps: int
    call: Callable[[], object]


class _Ready(collections.deque[asyncio.Handle]):
    """The callbacks to run, without those of paused processes."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, list[asyncio.Handle]] = {}
        self.watched: _Watched | None = None

    def append(self, handle: asyncio.Handle, /) -> None:
        if self.watched is not None and _process_of(handle) == self.watched.name:
            self.watched.steps -= 1
            if self.watched.steps <= 0:
                watched, self.watched = self.watched, None
                watched.call()
        held = self._held.get(_process_of(handle)) if self._held else None
        if held is None:
            super().append(handle)
        else:
            held.append(handle)

    def pause(self, name: str) -> None:
        held = self._held.setdefault(name, [])
        for at, handle in enumerate(self):
            if _process_of(handle) == name:
                held.append(handle)
                self[at] = _NOTHING

    def resume(self, name: str) -> None:
        self.extend(self._held.pop(name, ()))

    def paused(self) -> list[str]:
        return [*self._held]


class _Nothing:
    """In the place of a callback of a paused process: the loop counts on the length of the queue
    while it runs it."""

    _cancelled = True
    _context = Context()


_NOTHING: Any = _Nothing()


def _process_of(handle: asyncio.Handle) -> str:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(PROCESS, "")


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]], rng: Random) -> T:
    """Run this on a new loop, and cancel what is left of it."""
    loop = VirtualLoop(rng)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))
