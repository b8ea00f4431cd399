"""The rank processes of a pod: start, wait and termination, without orphans.

Three mechanisms prevent orphans. Each rank leads a process group, so that a signal reaches its
children. This process is a subreaper, so that a grandchild whose parent ended becomes its child and
is ended too. And the kernel kills a rank when its launcher is killed.

Everything runs in the main thread, with the signals blocked and received by ``sigtimedwait``.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright import memory, output

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STRAYS_TIMEOUT_S = 5.0
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""What ends the ranks, as under torchrun: the STOPSIGNAL of an image replaces SIGTERM."""

SIGNALS = ENDING | {signal.SIGCHLD}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a rank. ``code`` is as in a shell: 128 + number for a signal.
    ``memory_kills`` counts the processes that the kernel killed for memory since the ranks began.
    """

    rank: int
    code: int
    signal: str | None
    memory_kills: int = 0


class Ranks:
    """The ranks of this pod. Must be constructed before any thread: it blocks SIGNALS for all."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._processes: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        self.outputs: dict[int, output.Output] = {}
        self._pid = os.getpid()
        self.memory = memory.find_files()
        self._kills_before = memory.count_kills(self.memory)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._prctl(PR_SET_CHILD_SUBREAPER, 1)

    @property
    def running(self) -> int:
        """The number of ranks that run."""
        return len(self._processes)

    def start(self, command: Sequence[str], environments: Mapping[int, Mapping[str, str]]) -> None:
        """Start one process for each rank. Raises OSError when the command cannot be run."""
        alone = len(environments) == 1
        for rank, environment in environments.items():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,
                preexec_fn=self._tie_to_launcher,
            )
            self._processes[process.pid] = (rank, process)
            self.outputs[rank] = output.Output("" if alone else f"[rank {rank}] ")

    def follow(self) -> None:
        """Pass on the output of the ranks. Called after ``start``, which must run without
        threads."""
        stdout, stderr = output.Sink(1), output.Sink(2)
        for rank, process in self._processes.values():
            assert process.stdout is not None
            assert process.stderr is not None
            self.outputs[rank].follow(process.stdout, stdout)
            self.outputs[rank].follow(process.stderr, stderr)

    def ended(self) -> Iterator[Exit]:
        """The ranks that ended since the last call, in the kernel's order."""
        for pid, status in _reaped():
            if pid not in self._processes:
                continue
            rank, process = self._processes.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            process.returncode = code
            name = _signal_name(-code) if code < 0 else None
            kills = memory.count_kills(self.memory) - self._kills_before if code else 0
            yield Exit(rank, code if code >= 0 else 128 - code, name, kills)

    def signal(self, number: int) -> None:
        """Send the signal to the process group of each running rank."""
        for pid in self._processes:
            # Not yet reaped, so the number still names it; a script may have left its group.
            for kill in (os.killpg, os.kill):
                try:
                    kill(pid, number)
                    break
                except OSError as error:
                    logger.warning("signal to rank failed", extra={"pid": pid, "error": str(error)})

    def stop(self, number: int, *, grace_s: float) -> None:
        """End all ranks: first with the signal, then with SIGKILL after the grace period. A stopped
        rank is continued, as it would not receive the signal."""
        self.signal(number)
        self.signal(signal.SIGCONT)
        deadline = time.monotonic() + grace_s
        while self.running and time.monotonic() < deadline:
            wait(deadline - time.monotonic())
            list(self.ended())
        self.signal(signal.SIGKILL)
        while self.running:
            wait(1.0)
            list(self.ended())

    def end_strays(self) -> None:
        """Kill all remaining descendants of the ranks."""
        deadline = time.monotonic() + STRAYS_TIMEOUT_S
        while (strays := _children()) and time.monotonic() < deadline:
            for pid in strays:
                with contextlib.suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)
            wait(0.1)
            list(self.ended())
        if strays:
            logger.warning("processes not ended", extra={"pids": strays})

    def _tie_to_launcher(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os.kill(os.getpid(), signal.SIGKILL)

    def _prctl(self, option: int, value: int) -> None:
        if self._libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def wait(timeout_s: float) -> int | None:
    """The next of SIGNALS, or None after the time."""
    taken = signal.sigtimedwait(SIGNALS, max(0.0, timeout_s))
    return None if taken is None else taken.si_signo


def _signal_name(number: int) -> str:
    """Real-time signals but the first and the last have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _reaped() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _children() -> list[int]:
    """All children of this process. /proc/*/stat, as not every kernel lists children."""
    children = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(errors="replace")
        except OSError:
            continue
        # The command in parentheses may hold spaces and parentheses itself.
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent == os.getpid():
            children.append(int(folder.name))
    return children
