"""Running jobs are moved as what is known of links changes, among all that goes wrong beside it."""

from __future__ import annotations

import pytest

from railwright_scheduler import migration
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.cluster_state import ObservedJob
from railwright_scheduler.migration_cost import MigrationCost
from railwright_scheduler.model.snapshot import Snapshot
from simulator.run import RunError, run

MOVING = (9, 32)
"""Seeds in which jobs are moved."""


def moves(seed: int) -> int:
    return run(seed, "moves").causes.get(CauseCode.REMAPPED, 0)


def always_better(_: Snapshot, seen: ObservedJob, *_more: object) -> migration._Move:
    """Whatever is known, a step would take half the time elsewhere."""
    cause = Cause(CauseCode.REMAPPED, "it is better elsewhere")
    return migration._Move(
        seen.job, seen.record.nodes, MigrationCost(2.0, 1.0, left=1e9, since=0), cause
    )


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job that is evaluated migrates, however soon after the last time."""
    monkeypatch.setattr(migration, "_move", always_better)
    monkeypatch.setattr(migration, "pause_s", lambda moves: 0.0)


def test_migrating_jobs_keep_every_invariant_and_settle() -> None:
    assert all(map(moves, MOVING))


@pytest.mark.usefixtures("restless")
def test_job_better_elsewhere_migrates_on_news() -> None:
    """I18, however wrong predictions are, and although new leaders take over: these read from the
    Placement under which topology a job was placed."""
    assert sum(map(moves, range(8))) > 8


@pytest.mark.usefixtures("restless")
def test_repeated_assessment_of_same_topology_breaks_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mutant migrates a job twice for one topology hash, which violates I18."""
    stale = migration._is_stale
    monkeypatch.setattr(
        migration,
        "_is_stale",
        lambda seen, verdict, topology_hash: stale(seen, verdict, f"not {topology_hash}"),
    )
    with pytest.raises(RunError, match="I18"):
        list(map(moves, range(8)))
