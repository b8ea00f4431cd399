"""What keeps a gang from starting though nodes are free: pods to be bound, room in the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import cluster, job, node
from fixtures.attempts import FAILED, entry, pods, seen, world_of
from railwright_scheduler import commit_plan
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt import ledger
from railwright_scheduler.attempt.ledger import LEDGER_SIZE_MAX
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob
from railwright_scheduler.model.reasons import BindingBacklog, BlockedByReservation, LedgerFull
from railwright_scheduler.plan import Plan
from railwright_scheduler.policy import admission
from railwright_scheduler.policy.admission import UNBOUND_MAX
from railwright_scheduler.policy.candidate import Candidate
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.gang_placement import GangPlacer

NAME_SIZE = 500
HALL = tuple(node(letter * NAME_SIZE) for letter in "klmnop")
"""Six nodes whose names have nothing in common."""


@pytest.fixture
def placements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs for which nodes were selected, in order."""
    selected: list[str] = []
    check = GangPlacer.check

    def recorded(placer: GangPlacer, candidate: Candidate, *rest: Any) -> Any:
        selected.append(candidate.job.uid)
        return check(placer, candidate, *rest)

    monkeypatch.setattr(GangPlacer, "check", recorded)
    return selected


def gang(name: str, num_nodes: int) -> ObservedJob:
    return replace(seen(name=name), job=job(name, replicas=num_nodes))


def crowded(*jobs: ObservedJob, free: int) -> ClusterState:
    """An attempt whose pods linger on dead nodes leaves so many bytes of the ledger."""
    plain = replace(
        entry(cause=FAILED, nodes=("n",), roles=()).brief, job_uid="gone", job_name="gone"
    )
    size = LEDGER_SIZE_MAX - free - plain.size + 1
    ending = replace(plain, nodes=("n" * size,))
    assert ending.size == LEDGER_SIZE_MAX - free
    lingering = ObservedAttempt(pods=pods("n0~")[:1], placed=True)
    return world_of(*jobs, nodes=HALL, entries=(ending,), attempts={ending.key: lingering})


def started(taken: Plan) -> list[str]:
    return [each.job_uid for each in taken.ledger.entries if each.cause is None]


def test_gang_without_ledger_room_waits_alone() -> None:
    """It reserves its nodes; a job that fits beside them starts, one that does not is behind."""
    jobs = (gang("a", 4), gang("b", 2), gang("c", 1))
    taken = scheduling.plan(crowded(*jobs, free=2_000))
    assert started(taken) == ["b"]
    full = taken.waits["a"]
    assert isinstance(full, LedgerFull)
    assert (full.need, full.free, full.limit) == (4, 2_000, LEDGER_SIZE_MAX)
    assert full.size > 4 * NAME_SIZE
    assert len(taken.reservations["a"]) == 4
    assert isinstance(taken.waits["c"], BlockedByReservation)


def test_gang_without_ledger_room_waits_alone_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that are being bound are not what it waits for."""
    monkeypatch.setattr(admission, "UNBOUND_MAX", 4)
    jobs = (gang("a", 4), gang("b", 1), gang("c", 1))
    world = crowded(*jobs[:2], free=2_000)
    first = scheduling.plan(world)
    assert started(first) == ["b"]
    later = tuple(replace(each, record=first.records[each.job.uid]) for each in jobs[:2])
    second = scheduling.plan(
        replace(
            world,
            ledger=first.ledger,
            jobs=(*later, jobs[2]),
            reservations=first.reservations,
        )
    )
    assert started(second) == ["b", "c"]
    assert isinstance(second.waits["a"], LedgerFull)
    assert second.reservations["a"] == first.reservations["a"]


@pytest.mark.parametrize(("hindrance", "expected"), [("", ["a"]), ("504", ["a", "b"])])
def test_hindered_gang_leaves_the_share_to_others(
    monkeypatch: pytest.MonkeyPatch, hindrance: str, expected: list[str]
) -> None:
    """Its entry takes the whole share of commits, and its requests fail until its deadline."""
    monkeypatch.setattr(ledger, "COMMITTING_SIZE_MAX", 3 * NAME_SIZE)
    stuck = entry(nodes=tuple(each.name for each in HALL[:4]))
    stalled_s = commit_plan.HINDERED_S + 1
    stalled = ObservedAttempt(placed=True, stalled_s=stalled_s, hindrance=hindrance)
    jobs = (gang("a", 4), gang("b", 1))
    world = world_of(*jobs, nodes=HALL, entries=(stuck,), attempts={stuck.key: stalled})
    assert started(scheduling.plan(world)) == expected


def test_gang_starts_once_the_ledger_has_room() -> None:
    assert started(scheduling.plan(crowded(gang("a", 4), free=2_000))) == []
    assert started(scheduling.plan(crowded(gang("a", 4), free=2_500))) == ["a"]


def test_gang_larger_than_the_ledger_reserves_nothing(
    monkeypatch: pytest.MonkeyPatch, placements: list[str]
) -> None:
    """Nor are more gangs of its size placed in vain."""
    monkeypatch.setattr(ledger, "LEDGER_SIZE_MAX", 5 * NAME_SIZE)
    jobs = (gang("a", 6), gang("b", 6), gang("c", 1))
    taken = scheduling.plan(world_of(*jobs, nodes=HALL))
    assert started(taken) == ["c"]
    full = taken.waits["a"]
    assert isinstance(full, LedgerFull)
    assert not full.passes
    assert taken.waits["b"] == full
    assert not taken.reservations
    assert placements == ["a", "c"]


def test_full_share_of_gangs_holds_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs that are being bound leave the ledger soon: nothing overtakes."""
    monkeypatch.setattr(ledger, "COMMITTING_SIZE_MAX", 4 * NAME_SIZE)
    jobs = (gang("a", 2), gang("b", 3), gang("c", 1))
    taken = scheduling.plan(world_of(*jobs, nodes=HALL))
    assert started(taken) == ["a"]
    assert dict(taken.waits) == {"b": BindingBacklog(3, pods=2), "c": BindingBacklog(1, pods=2)}


def test_gangs_beyond_the_pods_to_bind_are_not_placed(placements: list[str]) -> None:
    nodes = tuple(node(f"n{i:05}") for i in range(3 * UNBOUND_MAX))
    jobs = [job(name, replicas=UNBOUND_MAX - i) for i, name in enumerate("abc")]
    decisions = decide(cluster(*nodes, jobs=tuple(jobs)))
    assert {wait.job_uid: wait.reason for wait in decisions.waiting} == {
        "b": BindingBacklog(UNBOUND_MAX - 1, pods=UNBOUND_MAX),
        "c": BindingBacklog(UNBOUND_MAX - 2, pods=UNBOUND_MAX),
    }
    assert placements == ["a"]
