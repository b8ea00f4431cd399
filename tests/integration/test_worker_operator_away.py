"""The start barrier, revocation, and an operator that is not there when a launcher looks for it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.launchers import environment_of, launched, python, termination_of
from fixtures.operator_endpoint import OperatorEndpoint, until
from railwright import protocol

TIMEOUT_S = 30
WAITS = "import time; print('up', flush=True); time.sleep(600)"
WAITS_FOR_FILE = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


@pytest.fixture
def operator() -> Iterator[OperatorEndpoint]:
    with OperatorEndpoint().listening() as listening:
        yield listening


def test_no_rank_starts_before_all_nodes_are_there(tmp_path: Path) -> None:
    command = python("import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'])")
    with contextlib.ExitStack() as stack:
        operator = stack.enter_context(OperatorEndpoint(num_nodes=2).listening())
        launchers = []
        for node_rank in (1, 0):
            environ = environment_of(operator.url, tmp_path, node_rank=node_rank)
            launchers.append(stack.enter_context(launched(command, environ)))
            if node_rank == 1:
                until(lambda: len(operator.tokens) > 2)
                assert not operator.heartbeats, "rank 1 started alone"
        outputs = [launcher.communicate(timeout=TIMEOUT_S) for launcher in launchers]
        assert [out for out, _ in outputs] == ["1 2\n", "0 2\n"]
        assert "waiting for node ranks 0" in outputs[0][1]
        assert [launcher.returncode for launcher in launchers] == [0, 0]


def test_a_signal_ends_the_wait_at_the_barrier(tmp_path: Path) -> None:
    with OperatorEndpoint(num_nodes=2).listening() as operator:
        environ = environment_of(operator.url, tmp_path)
        with launched(python(WAITS), environ) as launcher:
            until(lambda: bool(operator.registered))
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(TIMEOUT_S) == 143


@pytest.mark.parametrize(("status", "code"), [(409, 80), (400, 81)])
def test_a_refused_registration_ends_the_launcher(
    operator: OperatorEndpoint, tmp_path: Path, status: int, code: int
) -> None:
    operator.status = status
    environ = environment_of(operator.url, tmp_path)
    with launched(python(WAITS), environ) as launcher:
        assert launcher.wait(TIMEOUT_S) == code
    assert "as the test wants it" in (termination_of(tmp_path).message or "")


@pytest.mark.parametrize("answer", ["409", "stop"])
def test_a_revoked_attempt_stops_its_ranks_and_ends_with_80(
    operator: OperatorEndpoint, tmp_path: Path, answer: str
) -> None:
    environ = environment_of(operator.url, tmp_path)
    with launched(python(WAITS), environ) as launcher:
        until(lambda: bool(operator.heartbeats))
        if answer == "409":
            operator.status = 409
        else:
            operator.order = protocol.Order.STOP
        assert launcher.wait(TIMEOUT_S) == 80
    assert termination_of(tmp_path).message == "the attempt was revoked: as the test wants it"


@pytest.mark.parametrize("status", [403, 425, 503])
def test_a_start_waits_for_an_operator_that_is_not_ready(tmp_path: Path, status: int) -> None:
    operator = OperatorEndpoint(status=status)
    with contextlib.ExitStack() as stack:
        stack.enter_context(operator.listening())
        environ = environment_of(operator.url, tmp_path)
        launcher = stack.enter_context(launched(python("print('ran')"), environ))
        until(lambda: len(operator.tokens) > 1)
        operator.status = 200
        out, errors = launcher.communicate(timeout=TIMEOUT_S)
    assert (out, launcher.returncode) == ("ran\n", 0)
    assert f"registration failed: {status}" in errors


def test_a_start_waits_for_an_operator_that_is_down(tmp_path: Path) -> None:
    operator = OperatorEndpoint()
    with operator.listening():
        environ = environment_of(operator.url, tmp_path)
    with launched(python("print('ran')"), environ) as launcher:
        assert launcher.stderr is not None
        assert "registration failed: ConnectionRefusedError" in launcher.stderr.readline()
        with operator.listening():
            out, _ = launcher.communicate(timeout=TIMEOUT_S)
    assert (out, launcher.returncode) == ("ran\n", 0)


def test_training_goes_on_while_the_operator_is_away(tmp_path: Path) -> None:
    operator = OperatorEndpoint()
    go_on = tmp_path / "go-on"
    command = [*python(WAITS_FOR_FILE), str(go_on)]
    with contextlib.ExitStack() as stack:
        with operator.listening():
            environ = environment_of(operator.url, tmp_path)
            launcher = stack.enter_context(launched(command, environ))
            until(lambda: bool(operator.heartbeats))
        assert launcher.stderr is not None
        lines = iter(launcher.stderr.readline, "")
        assert any("heartbeat refused" in line for line in lines)
        received = len(operator.heartbeats)
        with operator.listening():
            until(lambda: len(operator.heartbeats) > received)
            go_on.touch()
            assert launcher.wait(TIMEOUT_S) == 0
    assert max(operator.heartbeats, key=lambda heartbeat: heartbeat.sequence).exited == 1
    sequences = [heartbeat.sequence for heartbeat in operator.heartbeats]
    assert len(sequences) == len(set(sequences))


def test_a_job_that_ends_while_the_operator_is_away_still_ends(tmp_path: Path) -> None:
    operator = OperatorEndpoint()
    go_on = tmp_path / "go-on"
    command = [*python(WAITS_FOR_FILE + "\nsys.exit('at the end')"), str(go_on)]
    with contextlib.ExitStack() as stack:
        with operator.listening():
            environ = environment_of(operator.url, tmp_path)
            launcher = stack.enter_context(launched(command, environ))
            until(lambda: bool(operator.heartbeats))
        go_on.touch()
        # The cause is left for the kubelet before the launcher tries to reach the operator again.
        until(lambda: bool((tmp_path / "termination-0").read_bytes()))
        assert launcher.poll() is None
        assert launcher.wait(TIMEOUT_S) == 1
    assert termination_of(tmp_path).last_lines == "at the end\n"
