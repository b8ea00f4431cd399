"""Stacks of ranks, collected when their steps stall.

A rank registers a handler of faulthandler at its first report. It runs without Python's lock, so
that a rank that waits in a collective responds; a stopped process does not. The launcher sends the
signal only to a process that handles it, as it would end any other.
"""

from __future__ import annotations

import collections
import faulthandler
import logging
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from railwright import output, protocol

SIGNAL = signal.SIGRTMIN + 8
"""Neither Python, torch, NCCL nor batch systems use it."""

ANSWER_S = 1.0
"""A handler writes within milliseconds; this allows for a busy machine."""

DUMP_BYTES_MAX = 64 * 1024
LOGGED_LINES_MAX = 100
"""Of each of at most protocol.STACKS_MAX stacks that differ."""

FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
THREAD_START = "_bootstrap"

logger = logging.getLogger(__name__)


def register(folder: Path) -> bool:
    """Register the handler of SIGNAL, which writes into the folder; return whether that
    succeeded."""
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return False
    try:
        file = os.open(_dump(folder, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(SIGNAL, file=file, all_threads=True)
    except (OSError, RuntimeError, ValueError):
        return False
    return True


class StackDesk:
    """The launcher's part: signals all ranks of its node, and reads their stacks later."""

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._asked: dict[int, tuple[int, int]] = {}
        self._asked_s: float | None = None
        self._answer: tuple[protocol.Stack, ...] | None = None

    def ask(self, pids: Mapping[int, int]) -> None:
        """Signal these processes, by rank, once until ``forget``."""
        if self._asked_s is not None:
            return
        self._asked_s = self._clock()
        for rank, pid in pids.items():
            if not _catches(pid):
                continue
            self._asked[rank] = pid, _size(_dump(self._folder, pid))
            try:
                os.kill(pid, SIGNAL)
            except OSError as error:
                logger.warning("stack signal failed", extra={"rank": rank, "error": str(error)})

    def forget(self) -> None:
        """Drop the stacks: the ranks make progress."""
        self._asked, self._asked_s, self._answer = {}, None, None

    def answer(self) -> tuple[protocol.Stack, ...] | None:
        """The stacks of the ranks, those without a response first; None until the time is over."""
        if self._asked_s is None or self._clock() - self._asked_s < ANSWER_S:
            return None
        if self._answer is None:
            self._answer = self._collected()
        return self._answer

    def _collected(self) -> tuple[protocol.Stack, ...]:
        ranks: dict[tuple[bool, str], list[int]] = collections.defaultdict(list)
        dumps: dict[tuple[bool, str], str] = {}
        for rank, (pid, offset) in sorted(self._asked.items()):
            dump = _read(_dump(self._folder, pid), offset)
            frames = main_stack(dump)
            key = (True, frames) if frames else (False, f"its process is {_state(pid)}")
            ranks[key].append(rank)
            dumps.setdefault(key, dump)
        keys = sorted(ranks, key=lambda key: (key[0], len(ranks[key]), key[1]))[
            : protocol.STACKS_MAX
        ]
        for key in keys:
            _log(ranks[key], dumps[key] or key[1])
        return tuple(
            protocol.Stack(
                ranks=tuple(ranks[key][: protocol.RANKS_NAMED_MAX]),
                count=len(ranks[key]),
                answered=key[0],
                text=protocol.fitted(output.CONTROL.sub("", key[1]), protocol.STACK_BYTES_MAX),
            )
            for key in keys
        )


def main_stack(dump: str) -> str:
    """The main thread's frames in faulthandler's output, the innermost first; empty if none."""
    stacks: list[list[str]] = []
    for block in re.split(r"^(?=(?:Current thread|Thread) )", dump, flags=re.MULTILINE):
        frames = [
            f"{function} {os.path.basename(path)}:{line}"
            for path, line, function in FRAME.findall(block)
        ]
        if frames and not frames[-1].startswith(THREAD_START):
            stacks.append(frames)
    # Threads that no Python code started may call into it; the main thread comes last.
    return " < ".join(stacks[-1]) if stacks else ""


def _dump(folder: Path, pid: int) -> Path:
    return folder / f"stacks-{pid}"


def _log(ranks: list[int], text: str) -> None:
    named = ", ".join(map(str, ranks[: protocol.RANKS_NAMED_MAX]))
    logger.warning("steps stalled: stacks of ranks %s follow", named)
    for line in text.splitlines()[:LOGGED_LINES_MAX]:
        logger.warning("%s", line)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, offset: int) -> str:
    # A rank can put a pipe there, which would keep its reader waiting.
    def open_without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    try:
        with open(path, "rb", buffering=0, opener=open_without_waiting) as file:
            return os.pread(file.fileno(), DUMP_BYTES_MAX, offset).decode("utf-8", "replace")
    except OSError:
        return ""


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _catches(pid: int) -> bool:
    return bool(int(_status(pid).get("SigCgt", "0"), 16) >> (SIGNAL - 1) & 1)


def _state(pid: int) -> str:
    """The state of a process as the kernel names it, such as "stopped" or "disk sleep"."""
    return _status(pid).get("State", "").partition("(")[2].rstrip(")") or "gone"
