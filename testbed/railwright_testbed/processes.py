"""Processes of a testbed: started in their own session, recorded, and ended by their record.

A record holds the process id and its start time. Ids are used again by the kernel; a process is
only ever signalled when both match, so that a stale record can never end another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from railwright_testbed import waiting
from railwright_testbed.errors import TestbedError

_END_DEADLINE_S = 15.0
_ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Which process it is, beyond doubt: the id and the start time in clock ticks since boot."""

    name: str
    pid: int
    start_ticks: int


def record_of(pid: int, name: str) -> ProcessRecord | None:
    """The record of a living process; None when there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may have spaces: read after the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return ProcessRecord(name, pid, int(fields[19]))


def is_alive(record: ProcessRecord) -> bool:
    return record_of(record.pid, record.name) == record


def send(record: ProcessRecord, signal_number: signal.Signals) -> None:
    """Signal the recorded process, if it still is that process."""
    with contextlib.suppress(ProcessLookupError):
        # The descriptor is opened first and the start time read after it: from then on the
        # signal goes to that very process or to none.
        descriptor = os.pidfd_open(record.pid)
        try:
            if is_alive(record):
                signal.pidfd_send_signal(descriptor, signal_number)
        finally:
            os.close(descriptor)


def end(record: ProcessRecord) -> None:
    """Kill and wait. State of a testbed is disposable, so nothing needs to end gracefully."""
    send(record, signal.SIGKILL)
    waiting.until(
        lambda: not is_alive(record),
        f"end of {record.name} (pid {record.pid}) after SIGKILL",
        deadline_s=_END_DEADLINE_S,
    )


def write_record(folder: Path, record: ProcessRecord) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.name}.json"
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(asdict(record)))
    unfinished.replace(path)
    return path


def read_records(folder: Path) -> list[ProcessRecord]:
    if not folder.is_dir():
        return []
    return [ProcessRecord(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Whatever a signal is to do is done after this: a process is started and recorded, or is not.

    They are not blocked, because a process inherits what is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals are handled in the main thread alone.
        return
    came: list[int] = []
    handled = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda it, _: came.append(it)) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


class Process:
    """One process that this Python process started, with its log and its record on disk."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        records: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as output, _signals_held():
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # A Ctrl-C in the terminal goes to us alone; we end the parts in their order.
                start_new_session=True,
            )
            pid = self._child.pid
            self.record = record_of(pid, name) or ProcessRecord(name, pid, 0)
            self._record_path = write_record(records, self.record)

    def __repr__(self) -> str:
        state = "alive" if self.alive else f"ended with {self._child.returncode}"
        return f"Process({self.record.name}, pid {self.record.pid}, {state})"

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself, and not as it should."""
        return self._child.poll() not in (None, 0)

    def end(self) -> None:
        """Kill, reap and forget; a second call does nothing."""
        if self.alive:
            self._child.kill()
        self._child.wait(timeout=_END_DEADLINE_S)
        self._record_path.unlink(missing_ok=True)

    def release(self) -> None:
        """Leave it running when this Python process ends; its record stays on disk."""
        # An unreaped child makes Popen warn when it is collected; it is init's child soon.
        self._child.returncode = 0

    def evidence(self) -> str:
        return f"{self!r}\n{waiting.last_lines(self.log)}"

    def until(self, condition: Callable[[], object], what: str, *, deadline_s: float) -> None:
        """Wait for a condition that this process brings about; its end is a failure at once."""

        def answer() -> bool:
            if not self.alive:
                raise TestbedError(f"ended while waiting for {what}: {self.evidence()}")
            return bool(condition())

        waiting.until(answer, what, deadline_s=deadline_s, evidence=self.evidence)
