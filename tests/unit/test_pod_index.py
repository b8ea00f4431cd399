"""Pods by attempt and by node: what a row of changes adds up to."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.jobs import layout
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.cluster_state import ObservedAttempt

GPU = "nvidia.com/gpu"


def namespace_of(job_uid: str) -> str | None:
    """Job "a" is in namespace "team"; no other is known."""
    return {"a": "team"}.get(job_uid)


def record(uid: str, *, rank: int = 0, node: str = "", phase: str = "Pending") -> PodRecord:
    """A pod of attempt 1 of job "a"."""
    return PodRecord(
        uid=uid,
        namespace="team",
        name=f"a-worker-{rank}-1",
        rv=1,
        node=node,
        phase=phase,
        deleting=False,
        requests={GPU: 8, "pods": 1},
        job_uid="a",
        attempt=1,
        node_rank=rank,
    )


def test_pods_of_an_attempt_come_by_rank() -> None:
    index = PodIndex(lambda uid: None)
    for rank in (2, 0, 1):
        index.change(None, record(f"u{rank}", rank=rank))
    assert [pod.node_rank for pod in index.of(("a", 1))] == [0, 1, 2]
    assert index.of(("a", 2)) == ()
    assert index.observed().keys() == {("a", 1)}


def test_pods_of_others_with_an_attempts_names_are_found() -> None:
    index = PodIndex(lambda uid: None)
    mine, other = record("u0"), replace(record("u1", rank=1), job_uid="old")
    bystander = replace(record("u2"), job_uid=None, name="a-worker-0-12")
    elsewhere = replace(other, uid="u3", namespace="else")
    for each in (mine, other, bystander, elsewhere):
        index.change(None, each)

    def name_conflicts(attempt: int) -> tuple[str, ...]:
        return index.name_conflicts(
            "a", namespace="team", job_name="a", replicas={"worker": 2}, attempt=attempt
        )

    assert (name_conflicts(1), name_conflicts(12), name_conflicts(2)) == (
        ("a-worker-1-1",),
        ("a-worker-0-12",),
        (),
    )
    # A larger job of this name had more pods, whose names nobody needs.
    index.change(None, replace(other, uid="u4", name="a-worker-2-1", index=2))
    index.change(other, replace(other, deleting=True))
    assert name_conflicts(1) == ("a-worker-1-1",)
    index.change(replace(other, deleting=True), None)
    assert name_conflicts(1) == ()


@pytest.mark.parametrize("order", [("a9", "a1"), ("a1", "a9")])
def test_of_two_pods_of_one_rank_newest_is_last(
    order: tuple[str, str],
) -> None:
    index = PodIndex(lambda uid: None)
    for uid in order:
        index.change(None, replace(record(uid), rv=8 if uid == "a1" else 7))
    assert [pod.uid for pod in index.of(("a", 1))] == ["a9", "a1"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_node_gives_to_bound_pods_until_they_end(phase: str) -> None:
    index = PodIndex(lambda uid: None)
    waiting = record("u0")
    bound = replace(waiting, node="n0", phase="Running")
    index.change(None, waiting)
    assert dict(index.usage("n0").used) == {}
    index.change(waiting, bound)
    assert dict(index.usage("n0").used) == {GPU: 8, "pods": 1}
    deleting = replace(bound, deleting=True)
    index.change(bound, deleting)
    assert index.usage("n0").used[GPU] == 8
    index.change(deleting, replace(deleting, phase=phase))
    assert dict(index.usage("n0").used) == {}


def test_only_one_live_pod_at_a_rank_is_known_by_its_uid() -> None:
    index = PodIndex(lambda uid: None)
    first = record("u0", node="n0", phase="Running")
    index.change(None, first)
    assert index.uid_of("a", 1, 0) == "u0"
    assert index.uid_of("a", 1, 1) is None
    second = record("u1", node="n0", phase="Running")
    index.change(None, second)
    assert index.uid_of("a", 1, 0) is None
    index.change(first, replace(first, phase="Failed"))
    assert index.uid_of("a", 1, 0) == "u1"


def test_uid_of_a_rank_reads_no_other_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of a launcher asks for it, while thousands of pods of its gang change."""
    index = PodIndex(namespace_of)
    for rank in range(3):
        index.change(None, record(f"u{rank}", rank=rank, node="n0", phase="Running"))
    monkeypatch.setattr(PodIndex, "of", lambda self, key: pytest.fail("all pods are ordered"))
    assert [index.uid_of("a", 1, rank) for rank in range(4)] == ["u0", "u1", "u2", None]


def test_a_pod_in_another_namespace_is_none_of_the_jobs() -> None:
    index = PodIndex(namespace_of)
    index.change(None, record("u0", node="n0", phase="Running"))
    index.change(None, replace(record("u1", node="n0", phase="Running"), namespace="other"))
    assert [pod.uid for pod in index.of(("a", 1))] == ["u0"]
    assert index.uid_of("a", 1, 0) == "u0"
    assert index.usage("n0").used[GPU] == 16


def test_pod_owner_is_resolved_again_once_the_job_is_cached() -> None:
    homes: dict[str, str] = {}
    index = PodIndex(homes.get)
    index.change(None, record("u0"))
    index.change(None, replace(record("u1", rank=1), namespace="elsewhere"))
    assert [pod.uid for pod in index.of(("a", 1))] == ["u0", "u1"]
    homes["a"] = "team"
    assert [pod.uid for pod in index.of(("a", 1))] == ["u0"]
    del homes["a"]
    assert [pod.uid for pod in index.of(("a", 1))] == ["u0", "u1"]


def test_foreign_pod_counts_on_its_node_only() -> None:
    index = PodIndex(lambda uid: None)
    stranger = replace(record("u0", node="n0", phase="Running"), job_uid=None)
    index.change(None, stranger)
    assert index.usage("n0").used[GPU] == 8
    assert index.observed() == {}
    index.change(stranger, None)
    assert repr(index) == "<PodIndex attempts=0 nodes=0>"


def test_resources_of_pods_that_went_are_forgotten() -> None:
    """A tenant's pods may name thousands of resources that no node has, each pod others."""
    index = PodIndex(lambda uid: None)
    index.change(None, replace(record("u0", node="n0", phase="Running"), job_uid=None))
    for number in range(3):
        named = replace(record("u1", node="n0", phase="Running"), job_uid=None)
        named = replace(named, requests={f"example.com/{number}": 1})
        index.change(None, named)
        index.change(named, None)
    assert index.usage("n0").used == index.usage("n0").foreign == {GPU: 8, "pods": 1}


def test_pod_that_claims_no_rank_any_more_is_not_mislabelled() -> None:
    index = PodIndex(namespace_of, lambda key: layout(1))
    forged = replace(record("forged"), role="evaluator")
    index.change(None, forged)
    assert index.of(("a", 1)) == ()
    assert index.mislabelled == 1
    index.change(forged, replace(forged, job_uid=None))
    assert index.mislabelled == 0


def _uid(pod: PodRecord) -> str:
    return pod.uid


def _facts(pod: PodRecord | Pod) -> tuple[str, int, str, bool]:
    return pod.uid, pod.node_rank, pod.node, pod.terminal


def test_usage_stays_while_pods_use_the_same() -> None:
    """A node is built again only if its usage is another object, and pods change often."""
    index = PodIndex(lambda uid: None)
    bound = record("u0", node="n0")
    index.change(None, bound)
    usage = index.usage("n0")
    running = replace(bound, phase="Running", rv=2)
    index.change(bound, running)
    assert index.usage("n0") is usage
    index.change(running, replace(running, requests={GPU: 4}))
    assert index.usage("n0").used == {GPU: 4}


@given(st.integers(min_value=0, max_value=2**32))
def test_nothing_is_left_of_pods_that_came_and_went(seed: int) -> None:
    """Whatever the order of changes, the index is what the pods that are there add up to."""
    rng = random.Random(seed)
    index = PodIndex(lambda uid: None)
    held: dict[str, PodRecord] = {}
    for _ in range(40):
        uid = f"u{rng.randrange(6)}"
        after = None
        if rng.random() < 0.7:
            after = record(
                uid,
                rank=rng.randrange(3),
                node=rng.choice(["", "n0", "n1"]),
                phase=rng.choice(["Pending", "Running", "Failed"]),
            )
            after = replace(after, requests={GPU: rng.choice([1, 8])})
        index.change(held.pop(uid, None), after)
        if after is not None:
            held[uid] = after
        pods = index.of(("a", 1))
        assert sorted(pods, key=_uid) == sorted(held.values(), key=_uid)
        assert [pod.node_rank for pod in pods] == sorted(pod.node_rank for pod in pods)
        observed = index.observed().get(("a", 1), ObservedAttempt())
        assert list(map(_facts, observed.pods)) == list(map(_facts, pods))
        for node in ("n0", "n1"):
            live = [pod for pod in held.values() if pod.node == node and not pod.terminal]
            used = index.usage(node).used.get(GPU, 0)
            assert used == sum(pod.requests[GPU] for pod in live)
    for uid in list(held):
        index.change(held.pop(uid), None)
    assert repr(index) == "<PodIndex attempts=0 nodes=0>"
