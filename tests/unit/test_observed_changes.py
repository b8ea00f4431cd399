"""What the state builder carries from one scheduling cycle to the next, and what it lets go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from fixtures import observing
from fixtures.observing import JOB, Watched
from railwright_api import names
from railwright_kube.projections import Identity
from railwright_operator.suspected_nodes import UNREPORTED_S
from railwright_operator.watch.site import (
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    is_decisive,
)
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.reasons import (
    PriorityClassNotFound,
    QueueNotFound,
    RuntimeClassNotFound,
    RuntimeClassRefused,
)
from railwright_scheduler.model.snapshot import QueueRound, Toleration
from railwright_watch.cluster_objects import ClusterObject, answered

Suspected = tuple[set[str], set[str], set[str]]
WAIT = QueueNotFound("none", existing=())
ROUND = QueueRound((0, 1, "a"), (0, 9, "z"))


def test_queue_goes_on_where_the_last_cycle_stopped() -> None:
    """With the reservations and the reasons of the last cycle: without them a large job starves."""
    seen = Watched(phase=Phase.QUEUED)
    plan = replace(
        seen.run_cycle(),
        reservations={JOB: ("n0",)},
        waits={JOB: WAIT},
        queue_round=ROUND,
    )
    seen.state_builder.sync_sessions(plan, Isolation())
    world = seen.world()
    assert world.reservations == {JOB: ("n0",)}
    assert world.waits == {JOB: WAIT}
    assert world.queue_round == ROUND


def test_running_attempt_has_started_for_a_new_leader() -> None:
    """Before the first message of a launcher: it does not get another deadline to start."""
    assert Watched(phase=Phase.RUNNING).world().jobs[0].started
    assert not Watched(phase=Phase.STARTING).world().jobs[0].started


def test_live_pods_of_an_attempt_that_is_over_are_observed() -> None:
    """The newest attempt's too: a create may land after it left the ledger."""
    seen = Watched(num_nodes=1)
    seen.record(Phase.FAILED)
    assert len(seen.world().attempts[JOB, 1].pods) == 1
    seen.pod(0, phase="Failed")
    assert (JOB, 1) not in seen.world().attempts


def test_messages_of_an_unobserved_job_are_accepted() -> None:
    seen = Watched()
    seen.run_cycle()
    plan = seen.run_cycle()
    faulty = Isolation({(Stage.OBSERVATION, JOB): "error"})
    unobserved = replace(plan, records={}, unobserved=faulty.unobserved())
    seen.state_builder.sync_sessions(unobserved, faulty)
    seen.heartbeat(0)


def test_node_that_is_unready_again_has_its_time_again() -> None:
    seen = Watched()
    seen.run_cycle()
    seen.heartbeat(0)
    ready = seen.nodes["uid-n0"]
    unready = replace(ready, ready=False, unreachable=True)
    seen.nodes["uid-n0"] = unready
    seen.run_cycle()
    seen.nodes["uid-n0"] = ready
    seen.run_cycle(after_s=100.0)
    seen.run_cycle(after_s=1.0)
    seen.nodes["uid-n0"] = unready
    seen.now_s += 1.0
    assert seen.rank(0).unready_s == 0.0


def test_job_has_the_priority_of_a_class_made_later() -> None:
    seen = Watched(phase=Phase.QUEUED)
    raw = observing.raw_job(9, 2, {"phase": "Queued"})
    raw["metadata"] |= {"uid": "high", "name": "high"}
    raw["spec"]["priorityClassName"] = "high"
    seen.jobs.absorb(raw)
    assert isinstance(_job(seen, "high").held, PriorityClassNotFound)
    found = ClusterObject(Identity("high", "high", "1"), value=1_000)
    seen.site.change(PRIORITY_CLASSES, None, found)
    assert _job(seen, "high").held is None
    assert _job(seen, "high").job.priority == 1_000


def test_job_is_observed_with_its_limits() -> None:
    seen = Watched(phase=Phase.RUNNING)
    raw = observing.raw_job(9, 2, {"phase": "Queued"})
    raw["metadata"] |= {"uid": "limited", "name": "limited"}
    policy = {"backoffLimit": 2, "windowSeconds": 3600}
    raw["spec"] |= {"failurePolicy": policy, "activeDeadlineSeconds": 7, "startTimeoutSeconds": 11}
    seen.jobs.absorb(raw)
    found = _job(seen, "limited")
    assert found.failure_policy == FailurePolicy(2, 3600)
    assert (found.active_deadline_s, found.start_timeout_s) == (7, 11)
    assert _job(seen, JOB).active_deadline_s is None


def test_job_without_a_class_has_the_default_priority() -> None:
    """Of two default classes the lower one, as its pods have it."""
    seen = Watched(phase=Phase.QUEUED)
    assert _job(seen, JOB).job.priority == 0
    for name, value, is_default in (("high", 900, True), ("low", 500, True), ("batch", 100, False)):
        metadata = {"uid": name, "name": name, "resourceVersion": "1"}
        found = answered({"metadata": metadata, "value": value, "globalDefault": is_default})
        seen.site.change(PRIORITY_CLASSES, None, found)
    assert _job(seen, JOB).job.priority == 500
    assert is_decisive(found, structs.replace(found, is_default=True))


def _runtime_class(version: int, fixed: dict[str, str], **scheduling: Any) -> ClusterObject:
    """A RuntimeClass as the watch brings it."""
    raw = {
        "metadata": {"uid": "uid", "name": "kata", "resourceVersion": str(version)},
        "handler": "kata",
        "overhead": {"podFixed": fixed},
        "scheduling": scheduling,
    }
    return answered(raw)


def test_job_has_what_its_runtime_class_adds() -> None:
    """Also what a later version of the class adds. A role without one has nothing of it."""
    seen = Watched(phase=Phase.QUEUED)
    raw = observing.raw_job(9, 2, {"phase": "Queued"}, memory="1Gi")
    (worker,) = raw["spec"]["roles"]
    pod = {**worker["template"]["spec"], "nodeSelector": {"a": "1"}, "runtimeClassName": "kata"}
    raw["spec"]["roles"].append({**worker, "name": "kata", "template": {"spec": pod}})
    raw["metadata"] |= {"uid": "kata", "name": "kata"}
    seen.jobs.absorb(raw)
    assert _job(seen, "kata").held == RuntimeClassNotFound("kata", ())
    tolerated = {"key": "t", "operator": "Exists"}
    first = _runtime_class(1, {"memory": "1Ki"}, nodeSelector={"b": "2"}, tolerations=[tolerated])
    seen.site.change(RUNTIME_CLASSES, None, first)
    assert _job(seen, "kata").held is None
    plain, role = _job(seen, "kata").job.roles
    assert (plain.per_pod, plain.selector) == ({"memory": 2**30, "pods": 1}, {})
    assert role.per_pod == {"memory": 2**30 + 2**10, "pods": 1}
    assert role.selector == {"a": "1", "b": "2"}
    assert role.tolerations == (Toleration("t", "Exists", "", ""),)
    second = _runtime_class(2, {"cpu": "250m"})
    assert is_decisive(first, second)
    seen.site.change(RUNTIME_CLASSES, first, second)
    _, role = _job(seen, "kata").job.roles
    assert role.per_pod == {"cpu": 250, "memory": 2**30, "pods": 1}
    assert role.selector == {"a": "1"}


MANY = {f"example.com/d{number}": "1" for number in range(32)}


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.RUNNING])
@pytest.mark.parametrize(
    ("fixed", "selector", "why"),
    [
        (MANY, {}, "its pods request 33 resources, at most 32"),
        ({"memory": "9Ei"}, {}, "'9Ei' is too large"),
        ({}, {"a": "2"}, "it selects nodes with a=2, and the role 'worker' those with a=1"),
    ],
)
def test_runtime_class_that_fits_no_pod_holds_what_waits(
    phase: Phase, fixed: dict[str, str], selector: dict[str, str], why: str
) -> None:
    """What runs is assessed as before: its pods were created when the class was another."""
    seen = Watched(phase=phase)
    cached = seen.state_builder.jobs.get(JOB)
    assert cached is not None
    raw = observing.raw_job(9, 2, cached.raw["status"])
    raw["metadata"]["generation"] = 2
    raw["spec"]["roles"][0]["template"]["spec"] |= {
        "nodeSelector": {"a": "1"},
        "runtimeClassName": "kata",
    }
    seen.jobs.absorb(raw)
    seen.site.change(RUNTIME_CLASSES, None, _runtime_class(1, fixed, nodeSelector=selector))
    isolation = Isolation()
    *_, state = seen.state_builder.build(observing.LEDGER, isolation)
    assert state is not None
    assert not isolation.faults
    (job,) = state.jobs
    assert isinstance(job.held, RuntimeClassRefused)
    assert job.held.name == "kata"
    assert why in job.held.why
    assert len(job.ranks) == (2 if phase is Phase.RUNNING else 0)


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.STARTING])
def test_deleted_job_is_let_go(phase: Phase) -> None:
    """Jobs come and go for as long as an operator leads."""
    seen = Watched(phase=phase)
    seen.run_cycle()
    cached = seen.state_builder.job(JOB)
    assert cached is not None
    job = weakref.ref(cached.job)
    del cached
    seen.jobs.discard(JOB)
    seen.run_cycle(after_s=1.0)
    seen.run_cycle(after_s=1.0)
    gc.collect()
    assert job() is None


@pytest.mark.parametrize("is_missing", [False, True])
def test_silent_and_unreported_nodes_are_distinguished(
    is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent launchers, those without a message, and nodes for comparison."""
    seen = Watched(num_nodes=4, phase=Phase.STARTING)
    control = replace(observing.node_record("control"), labels={names.CONTROL_PLANE: ""})
    seen.nodes["uid-control"] = control
    found: list[Suspected] = []

    def mark_suspected(
        silent: Collection[str],
        unreported: Collection[str],
        others: Collection[str],
        *,
        alone: bool,
    ) -> None:
        found.append((set(silent), set(unreported), set(others)))

    monkeypatch.setattr(seen.lease_checker, "set_nodes", mark_suspected)
    seen.run_cycle()
    if is_missing:
        del seen.nodes["uid-n1"]
    else:
        seen.run_cycle(after_s=UNREPORTED_S + 1.0)
    for rank in (0, 2, 3):
        seen.heartbeat(rank)
    seen.run_cycle()
    assert found[-1][:2] == (set(), {"n1"})
    assert "control" not in found[-1][2]
    seen.now_s += 60.0
    for rank in (2, 3):
        seen.heartbeat(rank)
    seen.run_cycle()
    assert found[-1][:2] == ({"n0"}, {"n1"})


def _job(seen: Watched, uid: str) -> Any:
    return next(each for each in seen.world().jobs if each.job.uid == uid)
