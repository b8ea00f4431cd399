"""What a script reports reaches the launcher, or is dropped without harm."""

from __future__ import annotations

import math
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import railwright
from fixtures.operator_endpoint import until
from railwright import channel, environment, progress, protocol


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[channel.Report]]:
    """A launcher's sockets, and the reports that it received."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(progress, "_reporter", progress._Reporter())
    monkeypatch.setenv("RANK", "5")
    reports: list[channel.Report] = []
    server = channel.ChannelServer()
    server.start(reports.append, lambda _: channel.Permission(granted=True, confirmed=True))
    monkeypatch.setenv(environment.CHANNEL, str(server.folder))
    yield reports
    server.close()


def test_signal_handler_reports_within_a_report(reports: list[channel.Report]) -> None:
    """It runs in the thread that it interrupts."""
    with progress._reporter._lock:
        railwright.report(1)
    until(lambda: len(reports) == 1)


def test_a_report_arrives_and_total_steps_are_remembered(reports: list[channel.Report]) -> None:
    railwright.report(1, 2.5, samples_per_s=10, total_steps=60)
    railwright.report(2, 2.25)
    until(lambda: len(reports) == 2)
    assert reports[0].rank == 5
    assert reports[0].progress == protocol.Progress(1, 60, loss=2.5, samples_per_s=10.0)
    assert reports[1].progress == protocol.Progress(2, 60, loss=2.25)


def test_total_steps_may_be_any_number(reports: list[channel.Report]) -> None:
    """Such as a quotient, or one of numpy's: JSON knows none of these."""
    railwright.report(1, total_steps=cast("int", 60.0))
    railwright.report(2, total_steps=cast("int", np.int64(90)))
    until(lambda: len(reports) == 2)
    assert [report.progress.total_steps for report in reports] == [60, 90]


def test_total_steps_of_minus_one_are_not_known(reports: list[channel.Report]) -> None:
    """As other libraries have it; later reports arrive too."""
    railwright.report(1, total_steps=-1)
    railwright.report(2)
    railwright.report(3, total_steps=60)
    until(lambda: len(reports) == 3)
    assert [report.progress.step for report in reports] == [1, 2, 3]
    assert [report.progress.total_steps for report in reports] == [None, None, 60]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e301])
def test_loss_that_is_not_finite_is_reported_as_unknown(
    reports: list[channel.Report], loss: float
) -> None:
    railwright.report(1, loss)
    until(lambda: bool(reports))
    assert reports[0].progress == protocol.Progress(1)


def test_a_phase_lasts_as_long_as_its_block(reports: list[channel.Report]) -> None:
    railwright.report(7)
    with railwright.phase(railwright.Phase.EVALUATING):
        until(lambda: len(reports) == 2)
    until(lambda: len(reports) == 3)
    assert [each.progress.phase for each in reports] == ["Training", "Evaluating", "Training"]
    assert [each.progress.step for each in reports] == [7, 7, 7]


def test_report_in_a_phase_keeps_the_phase(reports: list[channel.Report]) -> None:
    """An evaluation may report its own steps, and save in between."""
    railwright.report(7)
    with railwright.phase(railwright.Phase.EVALUATING):
        railwright.report(8)
        with railwright.phase(railwright.Phase.CHECKPOINTING):
            railwright.report(9)
        railwright.report(10)
    railwright.report(11)
    until(lambda: len(reports) == 9)
    evaluates, saves, trains = "Evaluating", "Checkpointing", "Training"
    assert [(each.progress.step, each.progress.phase) for each in reports] == [
        (7, trains),
        (7, evaluates),
        (8, evaluates),
        (8, saves),
        (9, saves),
        (9, evaluates),
        (10, evaluates),
        (10, trains),
        (11, trains),
    ]


def test_phase_of_a_thread_outlasts_another_in_main(reports: list[channel.Report]) -> None:
    """A save in the background ends while the main thread evaluates."""
    railwright.report(7)
    saves = railwright.phase(railwright.Phase.CHECKPOINTING)
    saves.__enter__()
    with railwright.phase(railwright.Phase.EVALUATING):
        saves.__exit__(None, None, None)
        railwright.report(8)
    until(lambda: len(reports) == 6)
    assert [each.progress.phase for each in reports][-3:] == [
        "Evaluating",
        "Evaluating",
        "Training",
    ]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[socket.socket]:
    """A launcher's socket that takes no more."""
    reporter = progress._Reporter()
    monkeypatch.setattr(progress, "_reporter", reporter)
    monkeypatch.setenv(environment.CHANNEL, str(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as launcher:
        launcher.bind(str(tmp_path / channel.REPORTS))
        launcher.settimeout(5.0)
        while not reporter._dropped:
            railwright.report(7)
        yield launcher


def test_phase_waits_for_a_launcher_that_is_behind(full: socket.socket) -> None:
    def evaluate() -> None:
        with railwright.phase(railwright.Phase.EVALUATING):
            pass

    script = threading.Thread(target=evaluate)
    script.start()
    script.join(0.2)
    reported = protocol.Phase.TRAINING
    while reported is not protocol.Phase.EVALUATING:
        reported = protocol.decode(
            channel.Report, full.recv(protocol.MESSAGE_BYTES_MAX)
        ).progress.phase
    script.join()


def test_phase_gives_up_on_a_launcher_that_is_stopped(full: socket.socket) -> None:
    started_s = time.monotonic()
    with railwright.phase(railwright.Phase.EVALUATING):
        entered_s = time.monotonic() - started_s
    assert channel.PHASE_TIMEOUT_S / 2 < entered_s < 2 * channel.PHASE_TIMEOUT_S
    assert full.recv(protocol.MESSAGE_BYTES_MAX)


def test_a_full_socket_drops_reports_and_counts_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "_reporter", progress._Reporter())
    monkeypatch.setenv(environment.CHANNEL, str(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / channel.REPORTS))
        sent = 10_000
        for step in range(sent):
            railwright.report(step)
        held: list[channel.Report] = []
        deaf.setblocking(False)
        while len(held) < sent:
            try:
                held.append(protocol.decode(channel.Report, deaf.recv(protocol.MESSAGE_BYTES_MAX)))
            except BlockingIOError:
                break
        railwright.report(sent)
        newest = protocol.decode(channel.Report, deaf.recv(protocol.MESSAGE_BYTES_MAX))
    assert [report.progress.step for report in held] == list(range(len(held)))
    assert newest.dropped == sent - len(held) > 0


def test_a_report_that_makes_no_sense_is_dropped_by_the_launcher(
    reports: list[channel.Report],
) -> None:
    railwright.report(-1)
    railwright.report(3)
    until(lambda: bool(reports))
    assert [report.progress.step for report in reports] == [3]


def test_script_without_a_launcher_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.CHANNEL, raising=False)
    railwright.report(1, 0.5)
    assert channel.ask(channel.Request(commit_step=1)).confirmed


def test_a_launcher_that_is_gone_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one whose sockets this user may not open; why is printed once."""
    channel._print_once.cache_clear()
    monkeypatch.setenv(environment.CHANNEL, str(tmp_path / "gone"))
    railwright.report(1, 0.5)
    railwright.report(2, 0.5)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("railwright: progress does not reach the launcher: No such file")
    permission = channel.ask(channel.Request(commit_step=1))
    assert (permission.granted, permission.confirmed) == (True, False)
