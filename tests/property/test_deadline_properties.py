"""The deadline of a job under leaders whose clocks differ, each of which knows only the status."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fixtures import GPU, node
from fixtures.attempts import NODES, RUNNING, seen, world_of
from railwright_operator.report import status
from railwright_operator.report.status import StatusInput
from railwright_operator.watch.job_records import record_of
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.plan import plan

BUSY = tuple(node(name, used={GPU: 8}) for name in NODES)
STARTING = replace(RUNNING, phase=Phase.STARTING)
START_S = 1_800_000_000
YEAR_S = 365 * 86_400
ERROR_S = 50
"""The most by which a clock is wrong, where it is not by years."""

ERRORS_S = st.integers(-ERROR_S, ERROR_S)
CYCLES = st.lists(st.tuples(st.integers(0, 90), ERRORS_S), min_size=1, max_size=20)
DEADLINES_S = st.integers(1, 400)


def after_cycle(held: JobRecord, deadline_s: int, now_s: int) -> JobRecord:
    """The record after a cycle of a leader with this clock, as the next leader reads it."""
    state = world_of(seen(held, active_deadline_s=deadline_s), nodes=BUSY)
    now = plan(replace(state, now_s=now_s)).records["a"]
    rendered = status.render(
        StatusInput(
            record=now, before={}, generation=1, now="2026-01-02T03:04:05Z", failures_used=""
        )
    )
    stored = record_of({"status": orjson.loads(orjson.dumps(rendered))})
    return replace(stored, nodes=now.nodes)  # They are in the Placement.


def test_job_reaches_its_deadline_exactly_with_right_clocks() -> None:
    now = after_cycle(STARTING, 60, START_S)
    assert (now.phase, now.started_s) == (Phase.RUNNING, START_S)
    assert after_cycle(now, 60, START_S + 59).phase is Phase.RUNNING
    assert after_cycle(now, 60, START_S + 60).phase is Phase.FAILED


@given(ERRORS_S, CYCLES, DEADLINES_S)
def test_clock_errors_shift_a_deadline_by_no_more(
    first_error_s: int, cycles: list[tuple[int, int]], deadline_s: int
) -> None:
    """A job is active for its deadline, give or take the errors of two clocks."""
    now, lasts_s = after_cycle(STARTING, deadline_s, START_S + first_error_s), 0
    for pause_s, error_s in cycles:
        lasts_s += pause_s
        now = after_cycle(now, deadline_s, START_S + lasts_s + error_s)
        if now.phase is Phase.FAILED:
            break
    if now.phase is Phase.FAILED:
        assert lasts_s >= deadline_s - 2 * ERROR_S
    else:
        assert lasts_s < deadline_s + 2 * ERROR_S


@given(st.integers(1, 9), CYCLES, DEADLINES_S)
def test_start_written_years_ahead_delays_by_one_cycle(
    years: int, cycles: list[tuple[int, int]], deadline_s: int
) -> None:
    """The first leader with a right clock counts from its first cycle on."""
    now = after_cycle(STARTING, deadline_s, START_S + years * YEAR_S)
    lasts_s = -cycles[0][0]
    for pause_s, _ in cycles:
        lasts_s += pause_s
        now = after_cycle(now, deadline_s, START_S + lasts_s)
        assert (now.phase is Phase.FAILED) == (lasts_s >= deadline_s)
        if now.phase is Phase.FAILED:
            break
