"""Running jobs are moved as what is known of links changes, among all that goes wrong beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from railwright_scheduler import migration
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.cluster_state import ObservedJob
from railwright_scheduler.migration_cost import MigrationCost
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.simulator.contenders import Contenders
from railwright_scheduler.simulator.run import Outcome, RunError, run

STEPS = 300


def ran(seeds: range) -> list[Outcome]:
    return [run(seed, steps=STEPS, links=True) for seed in seeds]


def always_better(_: Snapshot, seen: ObservedJob, *_more: object) -> migration._Move:
    """Whatever is known, a step would take half the time elsewhere."""
    cause = Cause(CauseCode.REMAPPED, "it is better elsewhere")
    return migration._Move(
        seen.job, seen.record.nodes, MigrationCost(2.0, 1.0, left=1e9, since=0), cause
    )


def test_migrating_jobs_keep_every_invariant_and_settle() -> None:
    assert sum(outcome.moves for outcome in ran(range(40, 60))) > 0


def test_job_better_elsewhere_migrates_on_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I18, however wrong predictions are."""
    monkeypatch.setattr(migration, "_move", always_better)
    assert sum(outcome.moves for outcome in ran(range(30))) > 10


def test_new_leader_migrates_on_news_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the faults, links change between cycles, and a new leader runs each cycle: it can read
    only from the Placements under which links jobs were placed."""
    one_turn = Contenders.one_turn

    def with_new_leader(contenders: Contenders) -> Iterator[str]:
        if contenders._api.network.lasts and not contenders._api.ledger.entries:
            contenders._all.clear()
        return one_turn(contenders)

    monkeypatch.setattr(migration, "_move", always_better)
    monkeypatch.setattr(Contenders, "one_turn", with_new_leader)
    assert sum(outcome.moves for outcome in ran(range(40))) > 5


def test_repeated_assessment_of_same_topology_breaks_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mutant migrates a job twice for one topology hash, which violates I18."""
    monkeypatch.setattr(migration, "_move", always_better)
    monkeypatch.setattr(migration, "pause_s", lambda moves: 0.0)
    stale = migration._is_stale
    monkeypatch.setattr(
        migration,
        "_is_stale",
        lambda seen, verdict, topology_hash: stale(seen, verdict, f"not {topology_hash}"),
    )
    with pytest.raises(RunError, match="I18"):
        ran(range(30))
