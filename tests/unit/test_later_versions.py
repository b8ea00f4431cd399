"""Objects that a later version wrote are read, and keep what this version does not have."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from fixtures import attempts, observing, office, reporting
from railwright import profile, protocol
from railwright_api.training_job_status import TrainingJobStatus
from railwright_conversion import profiles
from railwright_kube.client import Api
from railwright_operator.report import status
from railwright_operator.report.attempt_metrics import AttemptMetrics
from railwright_operator.report.status import StatusInput
from railwright_operator.watch.job_records import record_of
from railwright_operator.write import ledger as store
from railwright_operator.write.ledger import LedgerStore
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model.placement_score import (
    CrossDomainBytes,
    PlacementScore,
    PredictedStep,
)
from railwright_scheduler.model.snapshot import Purpose
from railwright_testbed import later_fields

MERITS = PlacementScore(
    (CrossDomainBytes("rack", 1, 2),), PredictedStep(("a",), 1, 2, 3, 4, 5), 1, True
)
COMMITTING = attempts.entry(score=MERITS, spans=(("rack", 1),))
ABORTING = attempts.entry(2, cause=attempts.FAILED)
NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:10Z"


class Server:
    """One object, which each write replaces."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = held

    async def get(self, path: str) -> dict[str, Any]:
        return copy.deepcopy(self.held)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.held = copy.deepcopy(body)
        return body


def stored(*entries: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A ledger as the API server holds it."""
    stated = {"epoch": 4, "incarnation": "i", "holder": "later", "entries": list(entries)} | spec
    return {"metadata": {"name": "default", "resourceVersion": "7"}, "spec": stated}


def from_later(entry: Any, **changes: Any) -> dict[str, Any]:
    """An entry as a later version might write it."""
    fields = store._entry_fields(entry) | changes
    return cast("dict[str, Any]", later_fields.extended(fields, besides=("perPod",)))


async def taken_over(held: dict[str, Any]) -> tuple[LedgerStore, Server]:
    server = Server(held)
    leader = LedgerStore(cast("Api", server), holder="me")
    await leader.take_over()
    return leader, server


async def test_ledger_keeps_fields_of_later_version() -> None:
    found = [from_later(COMMITTING), from_later(ABORTING)]
    leader, server = await taken_over(stored(*found, shards=3))
    assert leader.ledger.entries == (COMMITTING, ABORTING)
    assert server.held["spec"]["entries"] == found
    assert server.held["spec"]["shards"] == 3
    revoked = COMMITTING.aborted(attempts.SUSPENDED)
    await leader.write(leader.ledger.with_entries([revoked]))
    (entry,) = server.held["spec"]["entries"]
    assert later_fields.NEWS.items() <= entry.items()
    assert entry["state"] == "Aborting"


async def test_ledger_keeps_the_purpose_of_an_attempt() -> None:
    pre_runs = [replace(each, purpose=Purpose.PRE_RUN) for each in (COMMITTING, ABORTING)]
    leader, _ = await taken_over(stored(*map(from_later, pre_runs)))
    assert leader.ledger.entries == tuple(pre_runs)


async def test_ledger_keeps_cause_of_later_version() -> None:
    found = from_later(ABORTING, cause={"code": "CableOnFire", "message": "smoke"})
    leader, server = await taken_over(stored(found))
    (entry,) = leader.ledger.entries
    assert entry.cause == Cause(CauseCode("CableOnFire"), "smoke")
    assert not entry.cause.counted
    assert server.held["spec"]["entries"][0]["cause"]["code"] == "CableOnFire"


@pytest.mark.parametrize("later", [{"state": "Draining"}, {"purpose": "Evaluation"}], ids=str)
async def test_entry_in_unknown_state_is_revoked(later: dict[str, str]) -> None:
    """No rule of this version says how such an attempt goes on; its devices stay reserved."""
    leader, server = await taken_over(stored(from_later(COMMITTING, **later)))
    (entry,) = leader.ledger.entries
    assert (entry.state, entry.nodes) == (EntryState.ABORTING, COMMITTING.nodes)
    assert entry.cause is not None
    assert entry.cause.code is CauseCode.STATE_UNKNOWN
    assert server.held["spec"]["entries"][0]["state"] == "Aborting"


async def test_prediction_cut_differently_is_left_out() -> None:
    found = from_later(COMMITTING)
    del found["mapping"]["predicted"]["nextBestSeconds"]
    leader, _ = await taken_over(stored(found))
    (entry,) = leader.ledger.entries
    assert entry.score is not None
    assert entry.score.predicted is None


@pytest.mark.parametrize(
    "broken",
    [{"epoch": None}, {"entries": [{"jobUID": "a"}]}, {"entries": [{"state": 7}]}],
    ids=lambda broken: next(iter(broken)),
)
async def test_ledger_of_wrong_types_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        await taken_over(stored(**broken))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"attempt": 2, "endedAttempt": 1}, Phase.STARTING),
        ({"attempt": 2, "endedAttempt": 2}, Phase.QUEUED),
        ({"attempt": 2, "endedAttempt": 2, "finishedAt": NOW}, Phase.FAILED),
    ],
)
def test_phase_of_later_version_is_neutral(found: dict[str, Any], expected: Phase) -> None:
    assert record_of({"status": found | {"phase": "Resizing"}}).phase is expected


def test_status_keeps_what_a_later_version_wrote() -> None:
    end = {"attempt": 1, "cause": "CableOnFire", "message": "smoke", "verdict": "cable"}
    drained = {"type": "Drained", "status": "True", "reason": "Asked", "message": ""}
    before = {
        "phase": "Recovering",
        "attempt": 1,
        "endedAttempt": 1,
        "restarts": 1,
        "lastTermination": end | {"time": NOW},
        "ettr": {"seconds": 7},
        "conditions": [drained | {"lastTransitionTime": NOW}],
    }
    record = record_of({"status": before})
    assert record.last_termination is not None
    assert (record.last_termination.code, record.backoff_s) == ("CableOnFire", 0)
    reported = status.StatusInput(
        record=record,
        before=before,
        generation=1,
        now=LATER,
        failures_used="",
    )
    after = status.render(reported)
    assert after["ettr"] == before["ettr"]
    assert after["lastTermination"] == before["lastTermination"]
    assert after["conditions"][-1] == drained | {"lastTransitionTime": NOW}
    assert after["reason"] == "CableOnFire"
    TrainingJobStatus.model_validate(after)


@pytest.mark.parametrize("changes", [{}, {"step": 200}, {"specHash": "4-b"}], ids=str)
def test_parts_of_a_status_keep_what_a_later_version_wrote(changes: dict[str, Any]) -> None:
    """Unless they are of another checkpoint, or of the pre-run of another spec."""
    point = {"group": "worker", "attempt": 1, "step": 100}
    needed = {"specHash": "4-a", "attempts": 1}
    held = {
        "phase": "Running",
        "attempt": 2,
        "endedAttempt": 1,
        "checkpoints": [point | later_fields.NEWS],
        "preRun": needed | later_fields.NEWS,
    }
    now = [
        part | {name: changes[name] for name in part if name in changes} for part in (point, needed)
    ]
    record = record_of({"status": held | {"checkpoints": now[:1], "preRun": now[1]}})
    given = StatusInput(record, before=held, generation=1, now=LATER, failures_used="")
    after = status.render(given)
    expected = [part | ({} if changes.keys() & part.keys() else later_fields.NEWS) for part in now]
    assert [*after["checkpoints"], after["preRun"]] == expected


def test_job_of_later_version_is_read() -> None:
    jobs = observing.jobs_cache()
    raw = reporting.raw_job("job", spec={"topology": {"required": "rack", "rails": "Preferred"}})
    raw["spec"] |= later_fields.NEWS
    raw["status"] = later_fields.NEWS | {"phase": "Queued", "progress": {"phase": "Compiling"}}
    jobs.absorb(raw)
    cached = jobs.get("job-uid")
    assert cached is not None
    assert cached.job.spec.topology is not None
    assert (cached.job.spec.topology.required, cached.job.spec.topology.rails) == ("rack", None)
    assert cached.record == JobRecord()


def test_job_of_wrong_types_is_set_aside() -> None:
    jobs = observing.jobs_cache()
    jobs.absorb(reporting.raw_job("job", spec={"topology": {"required": 7, "rails": "Preferred"}}))
    assert "required" in (jobs.why_unreadable("job-uid") or "")


def test_fabric_of_later_version_is_read() -> None:
    probing = {"mode": "AtNight", "hours": [1, 2]}
    raw = reporting.raw_object("default", spec={"levels": ["rack"], "probing": probing, "more": 1})
    cache = office.fabric_cache(raw)
    assert cache.levels == ("rack",)
    assert cache.probing.mode == "WhenUnknown"


def test_profile_of_later_version_is_read() -> None:
    called = {"element": "float32", "calls": 1, "size": 8}
    kinds = [
        {
            "group": [{"first": 0}, {"first": 1}],
            "firsts": [{"first": 0}],
            "traffic": [
                {"operation": "all-reduce", **called},
                {"operation": "all-to-some", **called},
            ],
        }
    ]
    document = {"ranks": 2, "steps": 3, "step_s": 1.0, "compute_s": None, "kinds": kinds}
    text = json.dumps(later_fields.extended(document | {"version": 2})).encode()
    assert profile.profile(text).version == 2
    (kind,) = profiles.profile(text).kinds
    assert [seen.operation.value for seen in kind.seen] == ["all-reduce"]


def test_cause_of_later_version_has_one_label() -> None:
    """Labels of metrics are a closed set, whatever the ledger holds."""
    registry = CollectorRegistry()
    metrics = AttemptMetrics(registry)
    running = JobRecord(Phase.RUNNING, attempt=1)
    for word in ("CableOnFire", "MoonPhase", "NodeLost"):
        cause = Cause(CauseCode(word), "it is")
        ended = JobRecord(Phase.RECOVERING, attempt=1, ended=1, last_termination=cause)
        given = StatusInput(ended, before={}, generation=1, now=NOW, failures_used="")
        metrics.record(running, given, submitted_s=0, received_s=0.0)
    found = {
        each.labels["cause"]: each.value
        for family in registry.collect()
        for each in family.samples
        if each.name == "railwright_attempts_ended_total" and each.value
    }
    assert found == {"Unknown": 2.0, "NodeLost": 1.0}


@pytest.mark.parametrize(
    "message",
    [
        protocol.Registered(protocol.Order.WAIT, missing=(1,)),
        protocol.HeartbeatAnswer(protocol.Order.STOP, "why"),
        protocol.CommitAnswer(granted=True),
        protocol.Failure(1, 1, last_lines="boom"),
    ],
)
def test_message_of_later_version_is_read(message: object) -> None:
    text = json.dumps(later_fields.extended(json.loads(protocol.encode(message))))
    assert protocol.decode(type(message), text.encode()) == message
