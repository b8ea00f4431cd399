"""Whatever was seen of a job, its status is one that the API server takes."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import layout, merging, schemas
from railwright import protocol
from railwright_api.training_job import TrainingJob
from railwright_api.training_job_status import TrainingJobStatus
from railwright_kube import bodies
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.report import status
from railwright_operator.report.status import StatusInput
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.model.evidence import ObservedRank, PodState
from railwright_scheduler.model.reasons import QueueNotFound
from railwright_testbed import structural

SCHEMA = structural.structural_schema(TrainingJob)["properties"]["status"]
REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,127}")
NOW = "2026-01-02T03:04:05Z"

TEXT = st.one_of(
    st.text(max_size=30),
    st.text(st.characters(exclude_categories=[]), min_size=1, max_size=8).map(lambda s: s * 900),
    st.sampled_from(["", "\ud800", "ErrImagePull: no", ": ", "9 lives", "█" * 5000, "a" * 9999]),
)
COUNTS = st.integers(0, 2**31)
NUMBERS = st.sampled_from([None, 0.5, -1.0, math.nan, math.inf, 1e308])
PHASES = st.sampled_from([*Phase, Phase.STARTING, Phase.STARTING, Phase.RUNNING])
NODES = st.lists(TEXT, max_size=6).map(tuple)
GROUPS = st.sampled_from(("worker", "evaluator"))
STEPS = st.integers(0, protocol.STEP_MAX)
POINTS = st.lists(st.builds(ResumePoint, GROUPS, COUNTS, STEPS), max_size=20).map(tuple)
TIMES_S = st.integers(0, 4 * 10**9)
CAUSES = st.builds(
    Cause,
    st.sampled_from(CauseCode),
    TEXT,
    nodes=NODES,
    node=st.none() | TEXT,
    rank=st.none() | st.integers(),
    exit_code=st.none() | st.integers(),
    signal=st.none() | TEXT,
    last_lines=TEXT,
    time_s=TIMES_S,
)
RECORDS = st.builds(
    JobRecord,
    phase=PHASES,
    attempt=COUNTS,
    ended=COUNTS,
    nodes=NODES,
    restarts=COUNTS,
    failures=COUNTS,
    failure_times_s=st.lists(TIMES_S, max_size=101).map(tuple),
    started_s=st.none() | TIMES_S,
    last_termination=st.none() | CAUSES,
    checkpoints=POINTS,
)
PROGRESS = st.builds(
    protocol.Progress, STEPS, st.none() | STEPS, NUMBERS, NUMBERS, st.sampled_from(protocol.Phase)
)
SKIPPED = st.lists(TEXT, max_size=protocol.SKIPPED_MAX).map(tuple)
RANKS = st.builds(LauncherView, st.just(0), st.just("n"), progress=PROGRESS, skipped=SKIPPED)
SESSIONS = st.builds(
    SessionView,
    st.just("uid"),
    COUNTS,
    st.just(layout(2)),
    st.lists(RANKS, min_size=1, max_size=2).map(tuple),
    st.lists(COUNTS, max_size=40).map(tuple),
    st.just(0.0),
    st.booleans(),
)
SEEN = st.builds(ObservedRank, COUNTS, TEXT, st.sampled_from(PodState), waiting=TEXT)


@st.composite
def tellings(draw: st.DrawFn) -> StatusInput:
    """Any first status of a job."""
    record = draw(RECORDS)
    suspected = tuple(range(len(record.nodes))) if draw(st.booleans()) else ()
    return StatusInput(
        record=record,
        before={},
        generation=draw(COUNTS),
        now=NOW,
        failures_used=draw(TEXT),
        training_group="worker",
        racks=draw(st.none() | st.integers(0, 99)),
        unprofiled=draw(st.lists(TEXT, max_size=2).map(tuple)),
        wait=draw(st.none() | st.builds(QueueNotFound, TEXT, NODES)),
        assessment=draw(st.sampled_from([None, Ongoing(suspected)])),
        session=draw(st.none() | SESSIONS),
        ranks=draw(st.lists(SEEN, max_size=3)),
        unreadable=draw(st.none() | st.none() | st.none() | TEXT),
    )


@given(tellings(), tellings())
def test_every_status_is_one_that_the_api_server_takes(
    first: StatusInput, second: StatusInput
) -> None:
    before = _checked(status.render(first))
    _checked(status.render(_after(second, before)))


@settings(deadline=None)
@given(tellings(), tellings())
def test_status_patch_leaves_nothing_old(first: StatusInput, second: StatusInput) -> None:
    """What a status held before never shows in the values of the next one."""
    before = _checked(status.render(first))
    after = _checked(status.render(_after(second, before)))
    assert merging.merged(before, bodies.merge_patch(before, after)) == after


def _after(reported: StatusInput, before: status.Status) -> StatusInput:
    return replace(reported, before=before)


def _checked(rendered: status.Status) -> status.Status:
    """The status as it comes back, after everything the API server and a reader hold against it."""
    TrainingJobStatus.model_validate(rendered)
    stored: status.Status = orjson.loads(orjson.dumps(rendered))
    assert list(schemas.refusals(SCHEMA, stored)) == []
    reasons = [stored["reason"], *(each["reason"] for each in stored["conditions"])]
    assert [reason for reason in reasons if not REASON.fullmatch(reason)] == []
    assert len(stored.get("message", "").encode()) <= 1024
    return stored
