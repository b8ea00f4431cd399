"""The content of a launcher's heartbeats, and how rarely steps are included."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fixtures import launchers
from fixtures.operator_endpoint import OperatorEndpoint
from railwright import channel, environment, protocol, reporting
from railwright.reporting import QUIET_S, STEPS_EVERY_S
from railwright_testbed import waiting

STEPS_EVERY_BEATS = round(STEPS_EVERY_S / protocol.HEARTBEAT_INTERVAL_S)
MEMBER = protocol.Member("job", 1, 1)
WORLD = protocol.WorldInfo(
    *(4, 2, 2, "10.0.0.1", 1), group_rank=1, role_rank=2, role_size=4, group="worker"
)


class Launcher:
    """Two ranks, and a clock that a test moves by one heartbeat at a time."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.state = reporting.LauncherState(
            MEMBER, WORLD, ranks=range(2, 4), folder=folder, clock=lambda: self.now_s
        )

    def report(self, rank: int, step: int, phase: protocol.Phase = protocol.Phase.TRAINING) -> None:
        self.state.report(channel.Report(rank, protocol.Progress(step, phase=phase)))

    def heartbeat(self) -> protocol.Heartbeat:
        self.now_s += protocol.HEARTBEAT_INTERVAL_S
        return self.state.next_heartbeat()


def test_steps_are_in_few_heartbeats_during_progress(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    reported = []
    for step in range(3 * STEPS_EVERY_BEATS):
        launcher.report(2, step)
        launcher.report(3, step)
        reported.append(launcher.heartbeat().steps)
    newest = [steps.newest for steps in reported if steps is not None]
    # The first report ends the phase Starting.
    assert newest == [0, STEPS_EVERY_BEATS, 2 * STEPS_EVERY_BEATS]


def test_standstill_and_its_end_are_reported_at_once(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.report(2, 1)
    launcher.heartbeat()
    reported = [launcher.heartbeat().steps for _ in range(8)]
    assert [steps is not None for steps in reported] == [False] * 3 + [True] * 5
    assert reported[-1] is not None
    assert reported[-1].still_s >= QUIET_S
    launcher.report(2, 2)
    ended = launcher.heartbeat().steps
    assert ended is not None
    assert (ended.newest, ended.still_s) == (2, protocol.HEARTBEAT_INTERVAL_S)


def test_lost_news_of_a_step_is_in_the_next_heartbeat(tmp_path: Path) -> None:
    """Else the operator takes the ranks to stand still for as long as all goes well."""
    launcher = Launcher(tmp_path)
    launcher.report(2, 1)
    for _ in range(8):
        launcher.heartbeat()
    launcher.report(2, 2)
    lost = launcher.heartbeat()
    assert lost.steps is not None
    assert lost.steps.newest == 2
    launcher.state.repeat_steps()
    launcher.report(2, 3)
    again = launcher.heartbeat().steps
    assert again is not None
    assert again.newest == 3
    assert launcher.heartbeat().steps is None


def test_phase_of_a_rank_is_in_every_heartbeat(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.report(2, 1)
    launcher.report(3, 1, protocol.Phase.EVALUATING)
    reported = [launcher.heartbeat().steps for _ in range(5)]
    assert {steps.phase for steps in reported if steps is not None} == {protocol.Phase.EVALUATING}
    assert None not in reported


def test_phase_change_causes_one_heartbeat(tmp_path: Path) -> None:
    """The launcher does not wait for the rest of a long interval."""
    launcher = Launcher(tmp_path)
    launcher.report(2, 1)
    launcher.heartbeat()
    assert not launcher.state.is_in_another_phase()
    launcher.report(2, 1, protocol.Phase.CHECKPOINTING)
    assert launcher.state.is_in_another_phase()
    steps = launcher.heartbeat().steps
    assert steps is not None
    assert steps.phase is protocol.Phase.CHECKPOINTING
    assert not launcher.state.is_in_another_phase()


def test_ranks_that_report_nothing_cost_no_more(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    reported = [launcher.heartbeat().steps for _ in range(2 * STEPS_EVERY_BEATS)]
    assert sum(steps is not None for steps in reported) == 2


def test_rank_that_ended_is_not_behind(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    launcher.report(2, 1)
    launcher.report(3, 9)
    launcher.state.ended(running=1, rank=2)
    steps = launcher.heartbeat().steps
    assert steps is not None
    assert (steps.behind, steps.reporting) == (0, 1)


def test_disk_that_fails_ends_no_heartbeats() -> None:
    def fail(pattern: str) -> list[Path]:
        raise OSError(errno.EIO, "a disk that fails")

    reporter = reporting.Reporter.__new__(reporting.Reporter)
    reporter._folder = cast(Path, SimpleNamespace(glob=fail))
    reporter._hand_over()


def test_fault_in_one_heartbeat_ends_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEARTBEAT_INTERVAL_S", 0.01)
    with OperatorEndpoint().listening() as operator:
        pod = environment.pod(launchers.environment_of(operator.url, tmp_path))
        state = reporting.LauncherState(MEMBER, WORLD, ranks=range(2, 4), folder=tmp_path)
        reporter = reporting.Reporter(pod, state, tmp_path)
        send, sent = reporter._send, list[bool]()

        def first_raises(timeout_s: float = 1.0) -> bool:
            sent.append(send(timeout_s))
            if len(sent) == 1:
                raise RuntimeError("a fault of ours")
            return sent[-1]

        monkeypatch.setattr(reporter, "_send", first_raises)
        reporter.start()
        waiting.until(lambda: len(sent) > 2, "more heartbeats", deadline_s=30)
        reporter.close()


def test_ranks_of_another_user_reach_the_launcher() -> None:
    """The command of the container may run them as one."""
    server = channel.ChannelServer()
    assert server.folder.stat().st_mode & 0o777 == 0o711
    modes = [path.stat().st_mode & 0o777 for path in server.folder.iterdir()]
    assert modes == [0o666, 0o666]
    server.close()
