"""A gang waits for the mapping of its ranks on reserved nodes, and not for long."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, node
from fixtures.jobs import job
from railwright_scheduler import migration
from railwright_scheduler import plan as scheduling
from railwright_scheduler.mapping.gang_mapping import MappingResult, map_ranks
from railwright_scheduler.model.decisions import Decisions
from railwright_scheduler.model.reasons import LedgerFull, MappingPending
from railwright_scheduler.model.snapshot import Job, Node, Snapshot
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_scheduler.policy.admission import Admission, LedgerCapacity
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.mappings import (
    MIGRATION,
    WAIT_S,
    Mappings,
    Outcome,
    RequestedMapping,
    Unmapped,
)
from railwright_scheduler.policy.queue_window import QueueWindow
from railwright_topology.links import Links
from railwright_topology.relative_speed import RelativeSpeed
from unit import test_migration

GPT = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
SPLIT = Parallelism(tensor=8, pipeline=2, data=4)
WORKLOAD = Workload(GPT, SPLIT, Recipe(2048, 1, 16))


def gang(**changes: Any) -> Job:
    plain = {"replicas": 8, "per_pod": {GPU: 8}, "ranks_per_pod": 8, "workload": WORKLOAD}
    return job("a", **(plain | changes))


def world(*jobs: Job, racks: int = 3) -> Snapshot:
    nodes = tuple(
        node(f"n{rack}-{at}", f"r{rack}", machine="DGX A100")
        for rack in range(racks)
        for at in range(4)
    )
    return Snapshot(("rack",), nodes, ("default",), jobs, links=(Links(8.0),))


def request(snapshot: Snapshot) -> RequestedMapping:
    """What the job requests in its first cycle."""
    mappings = Mappings({})
    decide(snapshot, mappings=mappings)
    return mappings.requested["a"]


def follow(
    snapshot: Snapshot,
    requested: RequestedMapping,
    *,
    age_s: float = 0.5,
    outcome: Outcome | None = None,
) -> tuple[Decisions, Mappings]:
    """The next cycle, which knows so much of the request."""
    younger = replace(requested, age_s=age_s, outcome=outcome)
    mappings = Mappings({"a": younger})
    return decide(snapshot, mappings=mappings), mappings


def mapped(requested: RequestedMapping) -> Outcome:
    found = map_ranks(requested.request)
    assert found is not None
    return found


def taken(snapshot: Snapshot, *names: str) -> Snapshot:
    """Others have these nodes by now."""

    def with_pods(each: Node) -> Node:
        return replace(each, used={GPU: 8}) if each.name in names else each

    return replace(snapshot, nodes=tuple(map(with_pods, snapshot.nodes)))


def test_a_gang_waits_on_reserved_nodes_and_requests_its_mapping() -> None:
    small = job("b", replicas=5, per_pod={GPU: 8})
    mappings = Mappings({})
    decided = decide(world(gang(), replace(small, priority=-1)), mappings=mappings)
    assert decided.admitted == ()
    assert decided.waiting[0].reason == MappingPending(8)
    (choice, *_) = mappings.requested["a"].gangs
    assert (*decided.reservations["a"],) == choice[0]
    assert type(decided.waiting[1].reason).__name__ == "BlockedByReservation"


def test_an_outcome_gives_what_would_have_been_computed_at_once() -> None:
    snapshot = world(gang())
    requested = request(snapshot)
    decided, mappings = follow(snapshot, requested, outcome=mapped(requested))
    assert decided.admitted == decide(snapshot).admitted
    assert decided.admitted[0].score is not None
    assert mappings.requested == {}


def test_a_young_request_is_waited_for_and_kept() -> None:
    snapshot = world(gang())
    requested = request(snapshot)
    decided, mappings = follow(snapshot, requested, age_s=WAIT_S - 0.1)
    assert decided.waiting[0].reason == MappingPending(8)
    assert mappings.requested["a"].request is requested.request


def test_after_two_seconds_it_starts_in_the_networks_order() -> None:
    snapshot = world(gang())
    decided, _ = follow(snapshot, request(snapshot), age_s=WAIT_S)
    (admit,) = decided.admitted
    assert list(admit.nodes) == sorted(admit.nodes)
    assert admit.score is not None
    assert (admit.score.truncated, admit.score.crossing) == ("MappingLate", ())


def test_a_failed_mapping_is_not_waited_for() -> None:
    snapshot = world(gang())
    decided, _ = follow(snapshot, request(snapshot), age_s=0.1, outcome=Unmapped.FAILED)
    (admit,) = decided.admitted
    assert list(admit.nodes) == sorted(admit.nodes)
    assert admit.score is not None
    assert admit.score.truncated == "MappingFailed"


def test_lost_nodes_need_another_mapping_within_the_same_time() -> None:
    snapshot = world(gang(), racks=4)
    requested = request(snapshot)
    lost = taken(snapshot, requested.gangs[0][0][0])
    decided, mappings = follow(lost, requested, age_s=1.0)
    assert decided.waiting[0].reason == MappingPending(8)
    assert mappings.requested["a"].request is not requested.request
    decided, _ = follow(lost, requested, age_s=WAIT_S, outcome=mapped(requested))
    assert decided.admitted[0].score is not None
    assert decided.admitted[0].score.truncated == "MappingLate"


def test_a_mapping_for_other_racks_or_roles_is_not_used() -> None:
    snapshot = world(gang())
    requested = request(snapshot)
    outcome = mapped(requested)
    first = requested.gangs[0][0][0]
    relabelled = replace(
        snapshot,
        nodes=tuple(
            replace(each, domains=("r9",)) if each.name == first else each
            for each in snapshot.nodes
        ),
    )
    smaller = world(gang(per_pod={GPU: 4}))
    for changed in (relabelled, smaller):
        decided, mappings = follow(changed, requested, outcome=outcome)
        assert decided.admitted == ()
        assert mappings.requested["a"].request is not requested.request


def test_where_the_choice_was_taken_the_reserved_one_is_mapped() -> None:
    """Jobs behind may take nodes of any choice but the first. Then only the order on that is
    requested again, once, and within the time of the first request."""
    slow = replace(world().nodes[0], relative_speed=RelativeSpeed(products=0.5))
    snapshot = taken(world(gang()), "n2-1", "n2-2", "n2-3")
    snapshot = replace(snapshot, nodes=(slow, *snapshot.nodes[1:]))
    requested = request(snapshot)
    first, *others = ({*names} for (names,) in requested.gangs)
    assert len({*requested.gangs}) == len(requested.gangs) > 1
    choice = 1 + [other - first for other in others].index({"n2-0"})
    lost = taken(snapshot, "n2-0")
    outcome = mapped(requested)
    assert isinstance(outcome, MappingResult)
    decided, mappings = follow(lost, requested, outcome=replace(outcome, choice=choice))
    assert decided.waiting[0].reason == MappingPending(8)
    again = mappings.requested["a"]
    assert again.gangs == requested.gangs[:1]
    decided, _ = follow(lost, again, age_s=1.0, outcome=mapped(again))
    (admit,) = decided.admitted
    assert {*admit.nodes} == first
    assert admit.score is not None
    assert (admit.score.truncated, bool(admit.score.crossing)) == ("", True)


def test_job_that_is_not_evaluated_keeps_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = (job("b", priority=9, replicas=1), job("c", priority=8, replicas=1))
    requested = request(world(gang()))
    window = functools.partial(QueueWindow, limit=1)
    monkeypatch.setitem(decide.__globals__, "QueueWindow", window)
    decided, mappings = follow(world(*ahead, gang()), requested)
    assert [admit.job_uid for admit in decided.admitted] == ["b", "c"]
    assert mappings.requested["a"].request is requested.request


@pytest.mark.parametrize(("age_s", "is_mapped"), [(0.5, True), (WAIT_S, False)])
def test_gang_with_its_mapping_starts_beyond_the_queue_window(
    monkeypatch: pytest.MonkeyPatch, age_s: float, is_mapped: bool
) -> None:
    ahead = [job(name, priority=9, replicas=1, per_pod={GPU: 9}) for name in "bcd"]
    requested = request(world(gang()))
    window = functools.partial(QueueWindow, limit=1)
    monkeypatch.setitem(decide.__globals__, "QueueWindow", window)
    others = [replace(gang(priority=-1), uid=uid, name=uid) for uid in ("e", "f")]
    done = replace(requested, age_s=age_s, outcome=mapped(requested) if is_mapped else None)
    mappings = Mappings({uid: done for uid in ("a", "e", "f")})
    decided = decide(world(*ahead, gang(), *others, racks=9), mappings=mappings)
    started = [admit.job_uid for admit in decided.admitted]
    assert started == ["a"]
    # Those behind it that are due as well have their own bound.
    assert mappings.requested.keys() == {"e", "f"}


def test_a_gang_without_ledger_room_is_not_mapped_again() -> None:
    """It could start on its nodes, so what it waits for changes neither them nor their order."""
    snapshot = world(gang())
    requested = request(snapshot)
    mappings = Mappings({"a": replace(requested, age_s=0.5, outcome=mapped(requested))})
    admission = Admission(0, LedgerCapacity(1, 1, 1, 0), lambda _: 9)
    decided = decide(snapshot, admission=admission, mappings=mappings)
    assert isinstance(decided.waiting[0].reason, LedgerFull)
    assert mappings.requested["a"].request is requested.request


def test_a_migration_is_never_too_late_for_its_mapping() -> None:
    now = test_migration.world(test_migration.running(), mappings={})
    (requested,) = scheduling.plan(now).mappings.values()
    old = {"a" + MIGRATION: replace(requested, age_s=10 * WAIT_S)}
    then = scheduling.plan(replace(now, mappings=old))
    assert (then.ledger.entries, then.mappings) == ((), old)
    assert then.topology_hashes["a"] == "before"


def test_a_job_migrates_once_its_ranks_are_mapped() -> None:
    running, key = test_migration.running(), "a" + MIGRATION
    now = test_migration.world(running, mappings={})
    first = scheduling.plan(now)
    assert (first.ledger.entries, [*first.mappings]) == ((), [key])
    assert first.topology_hashes["a"] == "before"
    requested = first.mappings[key]
    done = replace(requested, outcome=mapped(requested))
    then = scheduling.plan(replace(now, mappings={key: done}))
    assert then.ledger == scheduling.plan(test_migration.world(running)).ledger
    assert then.mappings == {}


def test_migrations_of_later_cycles_keep_their_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = test_migration.spread(5)
    names = [name for each in jobs for name in each.record.nodes]
    wide = {f"r{rack}": 2.0 for rack in range(10)}
    nodes = test_migration.racks(*names, count=10)
    now = test_migration.world(*jobs, links=wide, nodes=nodes, mappings={})
    with monkeypatch.context() as patch:
        patch.setattr(migration, "EFFORT_MAX", 10_000)
        requested = scheduling.plan(now).mappings
    assert len(requested) == len(jobs)
    done = {key: replace(each, outcome=mapped(each)) for key, each in requested.items()}
    then = scheduling.plan(replace(now, mappings=done))
    evaluated = {uid + MIGRATION for uid, each in then.topology_hashes.items() if each == "now"}
    assert 0 < len(evaluated) < len(jobs)
    assert then.mappings.keys() == requested.keys() - evaluated
