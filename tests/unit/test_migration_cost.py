"""What a move has in it: it has to save more than it costs, and to wait for a checkpoint."""

from __future__ import annotations

import pytest

from railwright_scheduler.migration_cost import MigrationCost

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("left_s", "since", "pays"),
    [
        # 2 s a step become 1 s; a start costs 180 s, and twice that must be saved.
        (10 * HOUR_S, 0, True),  # 18,000 s saved for 180 s
        (120.0, 0, False),  # 60 s saved
        (721.0, 0, True),  # 360.5 s saved for 180 s
        (719.0, 0, False),  # 359.5 s saved
        (10 * HOUR_S, 8_000, True),  # 18,000 s saved for 8,180 s
        (10 * HOUR_S, 9_000, False),  # 18,000 s saved for 9,180 s
    ],
)
def test_a_move_must_save_twice_what_it_costs(left_s: float, since: int, pays: bool) -> None:
    assert MigrationCost(2.0, 1.0, left=left_s / 2.0, since=since).pays is pays


def test_step_must_be_a_twentieth_shorter_for_any_duration() -> None:
    """A smaller gain does not pay for a migration."""
    assert not MigrationCost(2.0, 1.91, left=1e9, since=0).pays
    assert MigrationCost(2.0, 1.89, left=1e9, since=0).pays


def test_a_job_without_a_checkpoint_would_lose_all_it_did() -> None:
    """Half done, at twice the speed: to begin anew takes as long as to go on."""
    halfway = MigrationCost(2.0, 1.0, left=10_000, since=10_000)
    assert (halfway.saved_s, halfway.again_s) == (10_000, 10_000)
    assert halfway.pays_at_best
    assert not halfway.pays
    assert MigrationCost(2.0, 1.0, left=10_000, since=1_000).pays


@pytest.mark.parametrize(
    ("since", "waited_s", "timely"),
    [
        (30, 0.0, True),  # half a minute
        (31, 0.0, False),
        (500, 999.0, False),  # 499.5 s were lost by waiting, 500 s would be done again
        (500, 1001.0, True),
    ],
)
def test_a_move_waits_for_a_checkpoint_while_that_costs_less(
    since: int, waited_s: float, timely: bool
) -> None:
    assert MigrationCost(2.0, 1.0, left=1e9, since=since).is_timely(waited_s) is timely
