"""A launcher, its ranks and an operator's answers, as real processes over real HTTP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import launchers, operator_endpoint
from fixtures.launchers import environment_of, installed, launched, python, termination_of
from fixtures.operator_endpoint import OperatorEndpoint, until
from railwright import memory, protocol
from railwright.launcher import OUTPUT_END_S

TIMEOUT_S = 30
LIMIT_BYTES = 2**27
WAITS = "import time; print('up', flush=True); time.sleep(600)"
WRITES_PID = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()));"


@pytest.fixture
def operator() -> Iterator[OperatorEndpoint]:
    with OperatorEndpoint().listening() as listening:
        yield listening


def failures(operator: OperatorEndpoint) -> list[protocol.Failure]:
    return [heartbeat.failure for heartbeat in operator.heartbeats if heartbeat.failure is not None]


@pytest.mark.parametrize(
    ("command", "code", "name"),
    [
        (python("raise SystemExit(3)"), 3, None),
        (python("import os; os.kill(os.getpid(), 11)"), 139, "SIGSEGV"),
        (python("import os; os.kill(os.getpid(), 42)"), 170, "SIGRTMIN+8"),
        (["no-such-command"], 127, None),
        (["/dev/null"], 126, None),
    ],
)
def test_exit_code_is_that_of_the_rank(
    operator: OperatorEndpoint, tmp_path: Path, command: list[str], code: int, name: str | None
) -> None:
    with launched(command, environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.wait(TIMEOUT_S) == code
    reported = failures(operator)[-1]
    assert (reported.rank, reported.exit_code, reported.signal) == (0, code, name)
    assert termination_of(tmp_path) == reported


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of the kernel's with little room."""
    own = memory.find_files()
    folder = own.events.parent / f"railwright-test-{os.getpid()}" if own is not None else None
    try:
        assert folder is not None
        folder.mkdir()
    except (AssertionError, OSError) as error:
        pytest.skip(f"NOT RUN: NO MEMORY CGROUP CAN BE MADE HERE: {error}")
    try:
        limit = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
        (folder / limit).write_text(str(LIMIT_BYTES))
        yield folder
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def test_rank_killed_for_memory_is_reported_with_the_limit(
    operator: OperatorEndpoint, tmp_path: Path, cgroup: Path
) -> None:
    enter = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh"]
    grows = python(f"held = b'x' * {4 * LIMIT_BYTES}; print(len(held))")
    environ = environment_of(operator.url, tmp_path)
    with launched(grows, environ, through=enter) as launcher:
        assert launcher.wait(TIMEOUT_S) == 137
    reported = failures(operator)[-1]
    assert (reported.signal, reported.out_of_memory, reported.memory_limit) == (
        "SIGKILL",
        True,
        LIMIT_BYTES,
    )
    assert termination_of(tmp_path) == reported


def test_kernel_kill_of_a_ranks_process_is_reported(
    operator: OperatorEndpoint, tmp_path: Path, cgroup: Path
) -> None:
    """As a rank does whose data is loaded by a process of its own."""
    enter = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh"]
    loader = f"import sys, subprocess as s; grows = \"held = b'x' * {4 * LIMIT_BYTES}\";"
    loses = python(loader + "raise SystemExit(s.call([sys.executable, '-c', grows]) != 0)")
    environ = environment_of(operator.url, tmp_path)
    with launched(loses, environ, through=enter) as launcher:
        assert launcher.wait(TIMEOUT_S) == 1
    reported = failures(operator)[-1]
    assert (reported.exit_code, reported.out_of_memory) == (1, False)
    assert (
        reported.message == "since the start the kernel killed processes of its pod for memory: 1"
    )


def test_rank_killed_by_another_is_no_matter_of_memory(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    killed = python("import os; os.kill(os.getpid(), 9)")
    with launched(killed, environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.wait(TIMEOUT_S) == 137
    reported = failures(operator)[-1]
    assert (reported.signal, reported.out_of_memory, reported.message) == ("SIGKILL", False, None)


def test_success_of_a_rank_is_in_the_last_heartbeat(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    environ = environment_of(operator.url, tmp_path)
    with launched(python("print('done')"), environ) as launcher:
        assert launcher.wait(TIMEOUT_S) == 0
        assert launcher.stdout is not None
        assert launcher.stdout.read() == "done\n"
    assert (operator.heartbeats[-1].running, operator.heartbeats[-1].exited) == (0, 1)
    assert (tmp_path / "termination-0").read_text() == ""
    assert not list(tmp_path.glob("railwright-*")), "the folder of the sockets is left"


def test_script_that_clears_its_temporary_files_succeeds(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    clears = "import os, shutil; shutil.rmtree(os.environ['RAILWRIGHT_CHANNEL'])"
    with launched(python(clears), environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.wait(TIMEOUT_S) == 0


def test_rank_in_a_group_of_another_process_is_ended(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    """As the leader of a group of its own it cannot be: it joins one that it began."""
    source = """if 1:
        import os, time
        child = os.fork()
        if child:
            while os.getpgid(child) != child:
                time.sleep(0.01)
            os.setpgid(0, child)
            print("moved", flush=True)
        else:
            os.setpgid(0, 0)
        time.sleep(600)
    """
    environ = environment_of(operator.url, tmp_path)
    with launched(python(source), environ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "moved\n"
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(TIMEOUT_S) == 143


def test_first_failure_is_reported_while_others_run(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    source = """if 1:
        import os, signal, sys, time
        if os.environ["RANK"] == "1":
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
            sys.exit("out of luck")
        signal.signal(signal.SIGTERM, lambda *_: None)
        open(sys.argv[1], "w").close()
        time.sleep(600)
    """
    command = [*python(source), str(tmp_path / "deaf")]
    environ = environment_of(operator.url, tmp_path) | {"RAILWRIGHT_NUM_PROCESSES": "2"}
    with launched(command, environ) as launcher:
        until(lambda: bool(failures(operator)))
        assert launcher.poll() is None
        first = next(heartbeat for heartbeat in operator.heartbeats if heartbeat.failure)
        assert (first.running, first.exited) == (1, 1)
        os.kill(rank_pids(launcher.pid)[0], signal.SIGKILL)
        assert launcher.wait(TIMEOUT_S) == 1
    assert {reported.rank for reported in failures(operator)} == {1}
    assert failures(operator)[0].last_lines == "out of luck\n"


def rank_pids(launcher_pid: int) -> list[int]:
    children = Path(f"/proc/{launcher_pid}/task/{launcher_pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def test_last_lines_hold_both_streams_without_control_characters(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    """stdout and stderr are both in the report."""
    source = """if 1:
        import os, sys, time
        print("x" * 100_000, flush=True)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        print("\\x1b[31mred\\x00\\r50%\\r100%")
        sys.stdout.flush()
        sys.exit("the reason")
    """
    read = tmp_path / "read"
    command = [*python(source), str(read)]
    with launched(command, environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.stdout is not None
        # More than a pipe holds: who does not read is not told the last lines either.
        printed = 0
        while printed < 100_000:
            printed += launcher.stdout.readline().count("x")
        read.touch()
        launcher.communicate(timeout=TIMEOUT_S)
    lines = failures(operator)[-1].last_lines
    assert len(lines) <= protocol.LAST_LINES_BYTES_MAX
    assert {"[31mred", "50%", "100%", "the reason"} <= set(lines.splitlines())


def test_ranks_get_torchrun_environment_and_lines_carry_rank(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    """The variables are those of torchrun; each output line has the rank as prefix."""
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR OMP_NUM_THREADS"
    source = f"import os; print(*[os.environ[name] for name in '{names}'.split()])"
    environ = environment_of(operator.url, tmp_path) | {"RAILWRIGHT_NUM_PROCESSES": "2"}
    with launched(python(source), environ) as launcher:
        out, _ = launcher.communicate(timeout=TIMEOUT_S)
    assert sorted(out.splitlines()) == [
        "[rank 0] 0 2 0 2 0 127.0.0.1 1",
        "[rank 1] 1 2 1 2 0 127.0.0.1 1",
    ]


def test_script_imports_installed_package_and_keeps_its_path(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    """The user's PYTHONPATH stays in `sys.path`."""
    source = "import railwright, sys; print(railwright.__file__, 'of-the-user' in sys.path[1])"
    environ = environment_of(operator.url, tmp_path) | {"PYTHONPATH": "of-the-user"}
    with launched(python(source), environ) as launcher:
        out, _ = launcher.communicate(timeout=TIMEOUT_S)
    assert out == f"{installed()}/railwright/__init__.py True\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_reaches_the_rank_which_may_end_in_peace(
    operator: OperatorEndpoint, tmp_path: Path, number: signal.Signals
) -> None:
    source = f"""if 1:
        import signal, sys, time
        def end(number, frame):
            print("saved", number)
            sys.exit(0)
        signal.signal({int(number)}, end)
        {WAITS}
    """
    with launched(python(source), environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        launcher.send_signal(number)
        # Not 0: a job whose pod was evicted has not succeeded.
        assert launcher.wait(TIMEOUT_S) == 128 + number
        assert launcher.stdout.read() == f"saved {int(number)}\n"
    reported = failures(operator)[-1]
    assert (reported.exit_code, reported.message) == (128 + number, f"ended by {number.name}")
    assert termination_of(tmp_path) == reported


def test_rank_that_goes_on_is_killed_before_the_pod_is(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    """So that the launcher can report it; from a folder whose path is too long for a socket."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    environ = environment_of(operator.url, tmp_path)
    environ |= {"RAILWRIGHT_GRACE_SECONDS": "2", "TMPDIR": str(folder)}
    source = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
    with launched(python(source), environ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(10) == 128 + signal.SIGTERM
    assert termination_of(tmp_path) == failures(operator)[-1]


def test_unread_log_delays_the_end_once(operator: OperatorEndpoint, tmp_path: Path) -> None:
    """Not once for each rank: the kubelet would kill the launcher before its report."""
    environ = environment_of(operator.url, tmp_path) | {"RAILWRIGHT_NUM_PROCESSES": "8"}
    source = "print('x' * 60_000); raise SystemExit(3)"
    with launched(python(source), environ) as launcher:
        assert launcher.wait(5 * OUTPUT_END_S) == 3
    assert termination_of(tmp_path).exit_code == 3


def test_nothing_a_rank_started_outlives_the_launcher(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    grandchild = f"import signal; signal.signal(15, signal.SIG_IGN); {WRITES_PID} {WAITS}"
    source = f"""if 1:
        import pathlib, subprocess, sys
        command = [sys.executable, "-c", {grandchild!r}, {str(pid_file)!r}]
        subprocess.Popen(command, start_new_session=True)
        pid_file = pathlib.Path({str(pid_file)!r})
        while not (pid_file.exists() and pid_file.read_text()):
            pass
        sys.exit(4)
    """
    with launched(python(source), environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.wait(TIMEOUT_S) == 4
    assert not launchers.is_alive(int(pid_file.read_text()))


def test_ranks_die_with_a_launcher_that_is_killed(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    with launched(python(WAITS), environment_of(operator.url, tmp_path)) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        (rank,) = rank_pids(launcher.pid)
        launcher.kill()
        until(lambda: not launchers.is_alive(rank))


def test_pod_without_its_variables_names_them_and_exits_81(tmp_path: Path) -> None:
    environ = environment_of("http://127.0.0.1:1", tmp_path) | {"RAILWRIGHT_ATTEMPT": "first"}
    with launched(python(WAITS), environ) as launcher:
        assert launcher.wait(TIMEOUT_S) == 81
    message = termination_of(tmp_path).message
    assert message is not None
    assert message.startswith("RAILWRIGHT_ATTEMPT: seen 'first', expected a whole number from 1")


def test_every_message_carries_current_token_of_the_file(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    """The kubelet replaces the token file between two messages."""
    with launched(python(WAITS), environment_of(operator.url, tmp_path)) as launcher:
        until(lambda: bool(operator.heartbeats))
        (tmp_path / "token").write_text("the next token")
        until(lambda: operator.tokens[-1] == "Bearer the next token")
        assert operator.tokens[0] == f"Bearer {operator_endpoint.TOKEN}"
        assert launcher.poll() is None


def test_stacks_follow_a_request_and_show_a_stopped_rank(
    operator: OperatorEndpoint, tmp_path: Path
) -> None:
    source = """if 1:
        import os, railwright, threading
        railwright.report(7)
        print(os.environ["RANK"], os.getpid(), flush=True)
        threading.Event().wait(600)
    """
    environ = environment_of(operator.url, tmp_path) | {"RAILWRIGHT_NUM_PROCESSES": "2"}
    with launched(python(source), environ) as launcher:
        assert launcher.stdout is not None
        lines = [launcher.stdout.readline().split() for _ in range(2)]
        pids = {int(rank): int(pid) for *_, rank, pid in lines}
        until(lambda: reporting(operator) == 2)
        assert operator.heartbeats[-1].stacks is None
        os.kill(pids[1], signal.SIGSTOP)
        operator.wants_stacks = True
        until(lambda: operator.heartbeats[-1].stacks is not None)
        shown = operator.heartbeats[-1].stacks
        assert shown is not None
        stopped, waits = shown
        assert (stopped.ranks, stopped.text) == ((1,), "its process is stopped")
        assert (waits.ranks, waits.answered) == ((0,), True)
        assert "<module> <string>:5" in waits.text
        operator.wants_stacks = False
        until(lambda: operator.heartbeats[-1].stacks is None)
        assert launcher.poll() is None
        # The stopped rank ends by the signal too, long before the grace is over.
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(10) == 128 + signal.SIGTERM


def reporting(operator: OperatorEndpoint) -> int:
    steps = operator.heartbeats[-1].steps if operator.heartbeats else None
    return 0 if steps is None else steps.reporting
