"""Stacks of ranks: a rank that cannot respond is distinguished, and none is harmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railwright import protocol, stacks

WAITS = """
import pathlib, sys, threading, time
from railwright import stacks

def waits_for_peers():
    time.sleep(600)

registered = sys.argv[2] == "plain" or stacks.register(pathlib.Path(sys.argv[1]))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(registered, flush=True)
waits_for_peers()
"""
DUMP = """Thread 0x00007fe63ce7b6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007fe63ce7b6c1 (most recent call first):
  File "/site/torch/autograd/function.py", line 30 in apply

Current thread 0x00007fe63d9bfb80 (most recent call first):
  File "/site/torch/distributed.py", line 7 in all_reduce
  File "/app/train.py", line 12 in <module>
"""


@contextmanager
def waiting(folder: Path, how: str = "registered") -> Iterator[int]:
    """A process that waits, once it has registered."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, str(folder), how], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        try:
            yield process.pid
        finally:
            process.kill()


def answer(folder: Path, pids: dict[int, int]) -> tuple[protocol.Stack, ...]:
    desk = stacks.StackDesk(folder, clock=time.monotonic)
    desk.ask(pids)
    assert desk.answer() is None
    deadline = time.monotonic() + 20 * stacks.ANSWER_S
    while (found := desk.answer()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    desk.forget()
    assert desk.answer() is None
    return found


def test_ranks_at_one_place_are_one_stack(tmp_path: Path) -> None:
    with waiting(tmp_path) as first, waiting(tmp_path) as second:
        expected = "waits_for_peers <string>:6 < <module> <string>:11"
        deadline = time.monotonic() + 30
        # They say that they are ready a moment before they wait.
        while (found := answer(tmp_path, {4: first, 5: second}))[0].text != expected or found[1:]:
            assert time.monotonic() < deadline, found
        assert (found[0].ranks, found[0].count, found[0].answered) == ((4, 5), 2, True)


def test_stopped_rank_is_distinguished(tmp_path: Path) -> None:
    with waiting(tmp_path) as well, waiting(tmp_path) as stopped:
        os.kill(stopped, signal.SIGSTOP)
        first, second = answer(tmp_path, {0: well, 1: stopped})
        assert (first.ranks, first.answered, first.text) == ((1,), False, "its process is stopped")
        assert (second.ranks, second.answered) == ((0,), True)


def test_process_without_handler_is_not_touched(tmp_path: Path) -> None:
    with waiting(tmp_path, "plain") as plain:
        assert answer(tmp_path, {0: plain, 1: 2**22 - 1}) == ()
        assert Path(f"/proc/{plain}").exists()


def test_main_thread_is_found_among_others() -> None:
    expected = "all_reduce distributed.py:7 < <module> train.py:12"
    assert stacks.main_stack(DUMP) == expected
    assert stacks.main_stack(DUMP[: DUMP.index("Current")]) == "apply function.py:30"
    assert stacks.main_stack("") == ""


def test_handler_of_the_script_is_left_alone(tmp_path: Path) -> None:
    before = signal.signal(stacks.SIGNAL, lambda *_: None)
    try:
        assert not stacks.register(tmp_path)
    finally:
        signal.signal(stacks.SIGNAL, before)
    assert not list(tmp_path.iterdir())


def test_pipe_in_place_of_a_stack_does_not_block(tmp_path: Path) -> None:
    with waiting(tmp_path) as pid:
        dump = tmp_path / f"stacks-{pid}"
        dump.unlink()
        os.mkfifo(dump)
        (found,) = answer(tmp_path, {0: pid})
    assert (found.answered, found.text) == (False, "its process is sleeping")
