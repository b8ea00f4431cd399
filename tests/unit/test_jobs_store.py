"""The cache of jobs: the newest version wins, and a deleted job stays deleted."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import observing
from railwright_conversion import node_affinities
from railwright_operator.watch import job_objects
from railwright_operator.watch.job_records import record_of
from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import rendering
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.model.snapshot import TierLimit, Toleration, TopologyConstraints

CONTAINER = {"name": "train", "image": "image", "command": ["train"]}
LAUNCHER = rendering.Launcher("launcher", "http://operator")


def raw_job(version: int, *, uid: str = "a", generation: int = 1, **more: Any) -> dict[str, Any]:
    """A TrainingJob as the API server sends it; ``more`` is spec, status or template parts."""
    template = {"spec": {"containers": [CONTAINER], **more.get("pod", {})}}
    role = {"name": "worker", "replicas": 2, "template": template, **more.get("role", {})}
    return {
        "apiVersion": "railwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "uid": uid,
            "namespace": "team",
            "name": "train",
            "resourceVersion": str(version),
            "generation": generation,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            **more.get("metadata", {}),
        },
        "spec": {"roles": [role], **more.get("spec", {})},
        **({"status": more["status"]} if "status" in more else {}),
    }


@pytest.fixture
def jobs() -> Jobs:
    return observing.jobs_cache()


def test_job_is_read_with_its_requests_on_one_node(jobs: Jobs) -> None:
    toleration = {"key": "team", "operator": "Exists", "effect": "NoSchedule"}
    equal = {"key": "pool", "value": "blue"}
    pod = {"nodeSelector": {"kind": "h100"}, "tolerations": [toleration, equal]}
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    jobs.absorb(raw_job(5, pod=pod | {"containers": [CONTAINER | gpus]}))
    cached = jobs.get("a")
    assert cached is not None
    assert (cached.uid, cached.object.rv, cached.submitted_s) == ("a", 5, 1767323045)
    assert dict(cached.roles[0].per_pod) == {"nvidia.com/gpu": 8, "pods": 1}
    assert dict(cached.roles[0].selector) == {"kind": "h100"}
    assert cached.roles[0].tolerations == (
        Toleration("team", "Exists", "", "NoSchedule"),
        Toleration("pool", "Equal", "blue", ""),
    )
    assert cached.job.spec.failure_policy.backoff_limit == 3
    assert cached.record == JobRecord()


def test_roles_are_read_with_their_group_and_where_they_may_go(jobs: Jobs) -> None:
    """A role with a topology of its own has that instead of the job's."""
    own = {
        "preferred": "rack",
        "segments": [{"tier": "rack", "nodes": 2}],
        "spread": [{"tier": "block", "nodes": 2}],
        "rails": "Aligned",
    }
    named = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    required = {node_affinities.REQUIRED: {"nodeSelectorTerms": [{"matchFields": [named]}]}}
    pod = {"affinity": {"nodeAffinity": required}}
    raw = raw_job(1, pod=pod, role={"group": "all", "topology": own})
    raw["spec"]["topology"] = {"required": "block"}
    raw["spec"]["roles"] += raw_job(1, role={"name": "evaluator"})["spec"]["roles"]
    jobs.absorb(raw)
    cached = jobs.get("a")
    assert cached is not None
    worker, evaluator = cached.roles
    assert (worker.group, evaluator.group) == ("all", "evaluator")
    assert worker.affinity is not None
    assert [worker.affinity.matches(name, {}) for name in ("n1", "n2")] == [True, False]
    assert evaluator.affinity is None
    limit = TierLimit("rack", 2)
    assert worker.constraints == TopologyConstraints(
        preferred="rack", segments=(limit,), spreads=(TierLimit("block", 2),), aligned=True
    )
    assert evaluator.constraints == TopologyConstraints(required="block")
    assert (worker.shares_topology, evaluator.shares_topology) == (False, True)


def test_version_of_a_response_is_expected_of_the_watch() -> None:
    """What the watch brings itself is not."""
    expected: list[int] = []
    jobs = Jobs(lambda raw, role: rendering.sample_pod(raw, role, LAUNCHER), expect=expected.append)
    jobs.absorb(raw_job(5))
    jobs.take(job_objects.answered(raw_job(6)))
    assert expected == [5]


def test_an_older_version_changes_nothing(jobs: Jobs) -> None:
    jobs.absorb(raw_job(10, status={"phase": "Running", "attempt": 1}))
    jobs.absorb(raw_job(9))
    cached = jobs.get("a")
    assert cached is not None
    assert cached.record.phase is Phase.RUNNING


def test_versions_compare_as_numbers(jobs: Jobs) -> None:
    jobs.absorb(raw_job(9))
    jobs.absorb(raw_job(10, status={"phase": "Suspended"}))
    cached = jobs.get("a")
    assert cached is not None
    assert cached.record.phase is Phase.SUSPENDED


def test_a_changed_spec_is_read_again(jobs: Jobs) -> None:
    jobs.absorb(raw_job(1))
    jobs.absorb(raw_job(2, generation=2, spec={"suspend": True}, role={"replicas": 3}))
    cached = jobs.get("a")
    assert cached is not None
    assert (cached.job.spec.suspend, cached.roles[0].replicas) == (True, 3)


def test_spec_hash_changes_with_the_pods(jobs: Jobs) -> None:
    """Fields that do not change pods do not change the hash."""
    same: list[dict[str, Any]] = [
        {},
        {"suspend": True},
        {"failurePolicy": {"backoffLimit": 9}},
        {"queue": "other"},
    ]
    another = {"spec": {"containers": [dict(CONTAINER, image="another")]}}
    others: list[dict[str, Any]] = [
        {"role": {"replicas": 3}},
        {"role": {"processesPerReplica": 2}},
        {"spec": {"priorityClassName": "high"}},
        {"role": {"topology": {"required": "rack"}}},
        {"role": {"template": another}},
    ]
    shapes = []
    for version, parts in enumerate([*({"spec": spec} for spec in same), *others], 1):
        jobs.absorb(raw_job(version, generation=version, **parts))
        cached = jobs.get("a")
        assert cached is not None
        shapes.append(cached.spec_hash)
    assert len({*shapes[: len(same)]}) == 1
    assert len({*shapes}) == 1 + len(others)


@pytest.mark.parametrize("place", ["spec", "role"])
def test_spec_hash_ignores_the_order_of_spreads(jobs: Jobs, place: str) -> None:
    """The API server accepts another order in a job that is not suspended."""
    spread = [{"tier": "rack", "nodes": 2}, {"tier": "block", "nodes": 4}]
    hashes = set()
    for version, limits in enumerate((spread, spread[::-1]), 1):
        parts: dict[str, Any] = {place: {"topology": {"spread": limits}}}
        jobs.absorb(raw_job(version, generation=version, **parts))
        cached = jobs.get("a")
        assert cached is not None, jobs.why_unreadable("a")
        hashes.add(cached.spec_hash)
    assert len(hashes) == 1


def test_spec_hash_ignores_what_nobody_wrote(jobs: Jobs) -> None:
    """A later schema has fields and defaults that the API server sets in every job, also while this
    version still leads, or leads again."""
    near = {"required": "rack"}
    parts: list[dict[str, Any]] = [
        {"role": {"topology": near}},
        {"role": {"topology": near, "sinceLater": 7}, "spec": {"sinceLater": 7}},
        {"role": {"topology": near | {"sinceLater": 7, "spread": []}}},
        {"role": {"topology": near, "processesPerReplica": 1, "group": None}},
    ]
    hashes = set()
    for version, part in enumerate(parts, 1):
        jobs.absorb(raw_job(version, generation=version, **part))
        cached = jobs.get("a")
        assert cached is not None, jobs.why_unreadable("a")
        hashes |= {(cached.spec_hash, cached.pre_run_hash)}
    assert len(hashes) == 1


def test_late_update_does_not_restore_deleted_job(jobs: Jobs) -> None:
    jobs.absorb(raw_job(1))
    jobs.discard("a")
    jobs.absorb(raw_job(2))
    assert jobs.get("a") is None
    jobs.absorb(raw_job(3, uid="b"))
    assert [cached.uid for cached in jobs.all()] == ["b"]


def test_change_is_news_unless_an_answer_brought_it(jobs: Jobs) -> None:
    seen = [job_objects.answered(raw_job(version)) for version in (1, 2, 3)]
    assert jobs.is_news(None, seen[0])
    jobs.absorb(raw_job(2))
    assert [jobs.is_news(seen[0], each) for each in seen] == [False, False, True]
    assert jobs.is_news(seen[1], None)
    jobs.discard("a")
    assert not jobs.is_news(seen[1], None)
    assert not jobs.is_news(None, seen[2])


def test_job_being_deleted_is_cached_but_not_scheduled(jobs: Jobs) -> None:
    jobs.absorb(raw_job(1, metadata={"deletionTimestamp": "2026-01-02T03:04:06Z"}))
    assert jobs.get("a") is not None
    assert list(jobs.all()) == []


def test_a_record_is_read_back_from_the_status() -> None:
    status = {
        "phase": "Recovering",
        "attempt": 4,
        "endedAttempt": 4,
        "restarts": 3,
        "failures": 1,
        "lastTermination": {
            "attempt": 4,
            "cause": "NodeLost",
            "message": "node n1 is lost",
            "lostNodes": ["n1"],
            "node": "n1",
        },
        "checkpoints": [
            {"group": "worker", "attempt": 4, "step": 90},
            {"group": "worker", "attempt": 2, "step": 40},
        ],
    }
    assert record_of({"status": status}) == JobRecord(
        phase=Phase.RECOVERING,
        attempt=4,
        ended=4,
        restarts=3,
        failures=1,
        last_termination=Cause(CauseCode.NODE_LOST, "node n1 is lost", nodes=("n1",), node="n1"),
        checkpoints=(ResumePoint("worker", 4, 90), ResumePoint("worker", 2, 40)),
    )


@pytest.mark.parametrize("raw", [{}, {"status": None}, {"status": {}}])
def test_a_job_without_a_status_was_never_seen(raw: dict[str, Any]) -> None:
    assert record_of(raw) == JobRecord()


def test_a_job_that_cannot_be_read_is_left_out_alone(jobs: Jobs) -> None:
    jobs.absorb(raw_job(1, status={"phase": 7}))
    jobs.absorb(raw_job(2, uid="b"))
    assert [cached.uid for cached in jobs.all()] == ["b"]


def test_named_role_trains_although_it_is_second(jobs: Jobs) -> None:
    """It has the workload and the profile, it is alone in a pre-run, and it counts for the hash."""
    model = {"layers": 2, "hidden": 64, "heads": 4, "feedForward": 256, "vocabulary": 100}
    workload = {
        "role": "worker",
        "transformer": model,
        "parallelism": {"data": 8},
        "training": {"sequence": 64, "globalBatch": 24},
    }
    template = {"spec": {"containers": [CONTAINER]}}
    roles = [
        {"name": "actor", "replicas": 3, "template": template},
        {"name": "worker", "replicas": 4, "processesPerReplica": 2, "template": template},
    ]
    hashes = set()
    for version, role in enumerate(("worker", "actor"), 1):
        parts = {"roles": roles, "workload": workload | {"role": role}}
        if role == "actor":
            parts["workload"] = workload | {"role": role, "parallelism": {"data": 3}}
        jobs.absorb(raw_job(version, generation=version, spec=parts))
        cached = jobs.get("a")
        assert cached is not None, jobs.why_unreadable("a")
        assert cached.layout.training.role == role
        assert [its.workload is not None for its in cached.roles] == [
            its.name == role for its in cached.roles
        ]
        hashes.add(cached.spec_hash)
        pre_run = JobRecord(phase=Phase.PROFILING, nodes=("n0", "n1"))
        small = cached.layout_of(pre_run)
        assert [(each.role, len(each.pods)) for each in small.roles] == [(role, 2)]
        assert cached.layout_of(JobRecord(phase=Phase.RUNNING)) == cached.layout
        without = cached.with_workload(None)
        assert [its.workload for its in without.roles] == [None, None]
    assert len(hashes) == 2


def test_parameter_servers_are_the_ranks_of_the_named_role(jobs: Jobs) -> None:
    model = {"layers": 2, "hidden": 64, "heads": 4, "feedForward": 256, "vocabulary": 100}
    template = {"spec": {"containers": [CONTAINER]}}
    roles = [
        {"name": "worker", "replicas": 4, "processesPerReplica": 2, "template": template},
        {"name": "ps", "replicas": 3, "processesPerReplica": 5, "template": template},
    ]
    workload = {
        "transformer": model,
        "parallelism": {"servers": "ps"},
        "training": {"sequence": 64, "globalBatch": 24},
    }
    jobs.absorb(raw_job(1, spec={"roles": roles, "workload": workload}))
    cached = jobs.get("a")
    assert cached is not None, jobs.why_unreadable("a")
    worker, server = cached.roles
    assert server.workload is None
    assert worker.workload is not None
    assert (worker.workload.split.data, worker.workload.split.servers) == (8, 15)
