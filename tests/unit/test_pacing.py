"""When a launcher sends its next heartbeat: what ends a long interval, and what a failure does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fixtures.launchers import environment_of
from fixtures.operator_endpoint import OperatorEndpoint, until
from railwright import channel, endpoint, environment, pacing, protocol, registration, reporting
from railwright_operator import liveness
from railwright_operator.heartbeats.interval import INTERVAL_S_MAX

WORLD = protocol.WorldInfo(
    *(2, 1, 0, "10.0.0.1", 1), group_rank=0, role_rank=0, role_size=2, group="worker"
)
LONG_S = 60
"""No heartbeat of the interval comes within a test."""

PROMISED_S = protocol.HEARTBEAT_INTERVAL_S + 3.0
"""From a change of the phase to its heartbeat, and some seconds for a busy machine."""


class Speaking:
    """A launcher with two started ranks, and its operator."""

    def __init__(self, operator: OperatorEndpoint, folder: Path) -> None:
        environ = environment_of(operator.url, folder) | {"RAILWRIGHT_NUM_PROCESSES": "2"}
        pod = environment.pod(environ)
        self.operator = operator
        self.state = reporting.LauncherState(pod.member, WORLD, ranks=range(2), folder=folder)
        self.reporter = reporting.Reporter(pod, self.state, folder)

    def until_heard(self, count: int) -> protocol.Heartbeat:
        """The heartbeat with this number, within the time that is promised."""
        until(lambda: len(self.operator.heartbeats) >= count, timeout_s=PROMISED_S)
        assert len(self.operator.heartbeats) == count
        return self.operator.heartbeats[-1]


@contextmanager
def speaking(folder: Path) -> Iterator[Speaking]:
    """After the first heartbeat, whose answer states a long interval."""
    with OperatorEndpoint(interval_s=LONG_S).listening() as operator:
        launcher = Speaking(operator, folder)
        launcher.reporter.start()
        try:
            launcher.until_heard(1)
            yield launcher
        finally:
            launcher.reporter.close()


def test_change_of_phase_ends_a_long_interval(tmp_path: Path) -> None:
    with speaking(tmp_path) as launcher:
        for count, phase in enumerate(
            (protocol.Phase.TRAINING, protocol.Phase.CHECKPOINTING), start=2
        ):
            launcher.state.report(channel.Report(0, protocol.Progress(1, phase=phase)))
            steps = launcher.until_heard(count).steps
            assert steps is not None
            assert steps.phase is phase


def test_end_of_a_rank_ends_a_long_interval(tmp_path: Path) -> None:
    with speaking(tmp_path) as launcher:
        launcher.state.ended(running=1, rank=1)
        assert launcher.until_heard(2).exited == 1


def test_shorter_interval_counts_from_its_answer_on(tmp_path: Path) -> None:
    """The operator states the shortest while it wants stacks."""
    with speaking(tmp_path) as launcher:
        launcher.operator.interval_s = 1
        launcher.state.ended(running=1, rank=1)
        launcher.until_heard(2)
        launcher.until_heard(3)


def test_revocation_is_read_from_the_next_heartbeat(tmp_path: Path) -> None:
    with speaking(tmp_path) as launcher:
        launcher.operator.order = protocol.Order.STOP
        launcher.state.ended(running=1, rank=1)
        until(lambda: launcher.state.revoked is not None, timeout_s=PROMISED_S)


@pytest.mark.parametrize("interval_s", [2, 5, 8])
def test_pauses_grow_up_to_the_stated_interval(interval_s: int) -> None:
    for failures, most_s in enumerate((2.0, 4.0, 8.0, 16.0), start=1):
        most_s = min(most_s, interval_s)
        pauses = [pacing.heartbeat_s(failures, interval_s) for _ in range(200)]
        assert most_s * (1 - pacing.JITTER) <= min(pauses) <= max(pauses) <= most_s
        assert max(pauses) - min(pauses) > most_s * pacing.JITTER / 2
    assert pacing.heartbeat_s(10_000, interval_s) <= interval_s


@pytest.mark.parametrize("interval_s", [2, 5, 8])
def test_longer_wait_for_an_answer_shortens_the_pause(interval_s: int) -> None:
    """So no try comes later because the one before it waited."""
    assert pacing.patience_s(0, interval_s) == pacing.TIMEOUT_S
    for failures in (1, 2, 10):
        waited_s = pacing.patience_s(failures, interval_s)
        assert waited_s == max(pacing.TIMEOUT_S, interval_s)
        pauses = [pacing.heartbeat_s(failures, interval_s, waited_s=waited_s) for _ in range(200)]
        assert min(pauses) >= 0
        assert waited_s + max(pauses) <= pacing.TIMEOUT_S + interval_s


def test_new_leader_waits_for_the_longest_pause() -> None:
    """A launcher whose last try had just begun when a new leader began to listen is not suspected
    before it tried again."""
    longest_s = pacing.TIMEOUT_S + pacing.heartbeat_s(0, INTERVAL_S_MAX)
    assert longest_s < liveness.silence_limit_s(None)


class Answering(endpoint.Endpoint):
    """Gives these answers; None is none."""

    def __init__(self, *answers: protocol.Registered | None) -> None:
        self.answers = [*answers]

    def post(self, *_: Any, **__: Any) -> Any:
        answer = self.answers.pop(0)
        if answer is None:
            raise endpoint.UnreachableError("no answer")
        return answer


def test_registrations_follow_the_stated_interval(tmp_path: Path) -> None:
    """The shortest before one is stated; afterwards a failure makes none come sooner."""
    waits = (
        protocol.Registered(protocol.Order.WAIT),
        protocol.Registered(protocol.Order.WAIT, interval_s=8),
    )
    operator = Answering(*waits, None, protocol.Registered(protocol.Order.GO, world=WORLD))
    pod = environment.pod(environment_of("http://127.0.0.1:1", tmp_path))
    pauses: list[float] = []
    registration.world(pod, operator, master_port=1, pause=pauses.append)
    for pause, most_s in zip(pauses, (protocol.REGISTER_INTERVAL_S, 8.0, 8.0), strict=True):
        assert most_s * (1 - pacing.JITTER) <= pause <= most_s
