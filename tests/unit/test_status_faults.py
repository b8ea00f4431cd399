"""A job whose status cannot be rendered: each exception is counted, few are logged."""

from __future__ import annotations

import pytest

from fixtures import reporting
from fixtures.reporting import Desk

FAULTS = "railwright_job_faults_total"
CYCLES = 600


def tracebacks(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.exc_info is not None for record in caplog.records)


async def test_log_of_a_faulty_status_backs_off(caplog: pytest.LogCaptureFixture) -> None:
    """Every cycle tries again; a status that is rendered ends the back-off."""
    desk = Desk()
    path = desk.add(reporting.raw_job("bad"))
    desk.seen.faulty = "bad-uid"
    for _ in range(CYCLES):
        await desk.run_cycle()
        desk.now_s += 1.0
    assert 4 <= tracebacks(caplog) <= 12
    assert desk.registry.get_sample_value(FAULTS, {"stage": "Status"}) == CYCLES
    caplog.clear()
    desk.seen.faulty = ""
    await desk.run_cycle()
    assert desk.store.objects[path]["status"]["phase"] == "Queued"
    desk.seen.faulty = "bad-uid"
    await desk.run_cycle()
    assert tracebacks(caplog) == 1
