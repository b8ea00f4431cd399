"""A process of the mapper ends by itself where a mapping takes too much, and leaves nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from railwright_mapper import messages
from railwright_mapper.messages import READY, InvalidMessageError, Reply
from railwright_operator.mapper_process import COMMAND, ENVIRONMENT
from railwright_scheduler.mapping.gang_mapping import map_ranks
from unit.test_mappings import gang, request, world

LINE = messages.encode_request(7, request(world(gang())).request)

PLANTED = """
import os, socket, sys, time
from railwright_mapper import __main__ as mapper
mapper.ORPHANED_S = {orphaned_s}
def map_ranks(request):
    {instead}
mapper.map_ranks = map_ranks
mapper.main()
"""


def run(*command: str, lines: bytes = LINE) -> CompletedProcess[bytes]:
    return subprocess.run(
        command, input=lines, capture_output=True, timeout=60, env=ENVIRONMENT, check=False
    )


def planted(instead: str, *, orphaned_s: float = 60.0) -> CompletedProcess[bytes]:
    """A process that does this instead of mapping, with two requests."""
    return run(
        sys.executable, "-c", PLANTED.format(instead=instead, orphaned_s=orphaned_s), lines=LINE * 2
    )


def test_each_line_is_answered_until_there_are_no_more() -> None:
    done = run(*COMMAND, lines=LINE * 3)
    ready, *replies = done.stdout.splitlines(keepends=True)
    assert (ready, done.returncode, done.stderr) == (READY, 0, b"")
    number, sent = messages.decode_request(LINE)
    expected = Reply(number, map_ranks(sent))
    assert list(map(messages.decode_reply, replies)) == [expected] * 3


@pytest.mark.parametrize(
    "opens", ["open({token!r})", "os.close(2) or open({token!r})", "socket.socket()"]
)
def test_mapper_opens_neither_token_nor_connection(tmp_path: Path, opens: str) -> None:
    """It runs as the operator does, beside its token."""
    token = tmp_path / "token"
    token.write_text("secret")
    done = planted(opens.format(token=str(token)))
    _, reply = done.stdout.splitlines()
    assert "Too many open files" in messages.decode_reply(reply).failure.splitlines()[-1]
    assert b"secret" not in done.stdout


def test_more_memory_than_the_bound_is_a_failure() -> None:
    done = planted("return bytearray(mapper.MEMORY_BYTES_MAX)")
    _, *replies = done.stdout.splitlines()
    assert [messages.decode_reply(each).failure.splitlines()[-1] for each in replies] == [
        "MemoryError"
    ]
    assert done.returncode == 1


@pytest.mark.parametrize("instead", ["time.sleep(60)", "while True: pass"])
def test_a_mapping_that_hangs_ends_without_an_operator(instead: str) -> None:
    done = planted(instead, orphaned_s=0.5)
    assert (done.returncode, done.stdout) == (-signal.SIGALRM, READY)


def test_of_a_long_failure_the_end_is_sent() -> None:
    done = planted("raise ValueError('x' * 10_000 + 'the reason')")
    failure = messages.decode_reply(done.stdout.splitlines()[1]).failure
    assert failure.endswith("the reason\n")
    assert len(failure) == messages.FAILURE_MAX


def test_an_idle_process_goes_on() -> None:
    """Longer than a mapping may take, and whatever is typed in its terminal."""
    program = PLANTED.format(instead="return None", orphaned_s=2.0)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        process.send_signal(signal.SIGINT)
        for _ in range(2):
            process.stdin.write(LINE)
            process.stdin.flush()
            assert messages.decode_reply(process.stdout.readline()) == Reply(7)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=2.5)
        process.stdin.close()
        assert process.wait(timeout=20) == 0


def test_the_first_to_go_where_memory_is_short() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"no\n", b"{}\n", b"[" * 100_000, LINE.replace(b"[false,false]", b"")]
)
def test_mapper_refuses_invalid_request(line: bytes) -> None:
    with pytest.raises(
        InvalidMessageError, match=r"bytes that are no RequestLine|entries of profiled"
    ):
        messages.decode_request(line)
