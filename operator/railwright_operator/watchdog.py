"""End the process when a scheduling cycle hangs, and leave a mark on the job that it hangs on.

The Lease is renewed by a thread of its own, so a leader whose planning never ends would stay the
leader. The watchdog is a thread too. It checks the parts of a cycle that make no requests to the
API server. If such a part has not ended after ``CYCLE_DEADLINE_S``, it releases the Lease and ends
the process. A job whose handling alone took half of that time is marked before. A standby leads
within seconds and suspends that stage of the job (``faults``). Time is counted in checks, so a
pause of the process does not count.

A call into C that never ends and never releases the interpreter stops this thread as well. Then a
signal of the kernel's timer ends the process, without a mark.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

from railwright_operator.faults import CYCLE_DEADLINE_S
from railwright_process.lifecycle import EXIT_FAILED
from railwright_scheduler.isolation import Handling, Isolation

logger = logging.getLogger(__name__)

CHECK_S = 0.5
CHECKS_MAX = int(CYCLE_DEADLINE_S / CHECK_S)
CHECKS_OF_ONE_JOB = CHECKS_MAX // 2
LAST_RESORT_S = 8.0
"""How long after the deadline the kernel's timer goes off: the mark takes two requests, and the
release of the Lease follows, each with a deadline of two seconds."""

EXIT_CODE = EXIT_FAILED
STDERR = 2


class _Watched:
    """A cycle, with the number of checks of it and of the current handling."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._checks = self._checks_of_job = 0
        self._handling: Handling | None = None

    def check(self) -> int:
        """Count a check; return the number of checks."""
        handling = self._isolation.current
        # Each handling is a new object, even if it is equal to the one before.
        self._checks_of_job = self._checks_of_job + 1 if handling is self._handling else 1
        self._handling = handling
        self._checks += 1
        return self._checks

    def hanging(self) -> Handling | None:
        """The handling that took half of the cycle; None if no single one did."""
        return self._handling if self._checks_of_job >= CHECKS_OF_ONE_JOB else None


@dataclass(eq=False, repr=False)
class CycleWatchdog:
    """Watches the cycle of one leader. ``mark`` is called with the handling that hangs, from the
    watchdog's thread, and so is ``release``, which gives the Lease back."""

    _: KW_ONLY
    mark: Callable[[Handling], None]
    release: Callable[[], None]
    end: Callable[[int], object] = os._exit

    def __post_init__(self) -> None:
        self._watched: _Watched | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        faulthandler.register(signal.SIGALRM, file=STDERR, chain=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()

    @contextlib.contextmanager
    def watch(self, isolation: Isolation) -> Iterator[None]:
        """Watch the body, which must end within ``CYCLE_DEADLINE_S``."""
        self._watched = _Watched(isolation)
        # A timer of faulthandler is a thread: stopping it would block the loop for milliseconds.
        signal.setitimer(signal.ITIMER_REAL, CYCLE_DEADLINE_S + LAST_RESORT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self._watched = None

    def _run(self) -> None:
        while not self._stopping.wait(CHECK_S):
            watched = self._watched
            if watched is not None and watched.check() >= CHECKS_MAX:
                self._give_up(watched.hanging())
                return

    def _give_up(self, handling: Handling | None) -> None:
        stage, job_uid = handling or ("", "")
        logger.critical(
            "cycle hung, ending the process", extra={"job_uid": job_uid, "stage": stage}
        )
        faulthandler.dump_traceback(file=STDERR)
        if handling is not None:
            self._try(functools.partial(self.mark, handling))
        self._try(self.release)
        self.end(EXIT_CODE)

    def _try(self, act: Callable[[], None]) -> None:
        """Log any exception: the process ends anyway."""
        try:
            act()
        except Exception:
            logger.exception("last request of a hung process failed")
