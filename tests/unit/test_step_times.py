"""The steps of all ranks of a node in a heartbeat, in a size independent of their number."""

from __future__ import annotations

import pytest

from fixtures.hanging import Node, phase, step
from railwright import protocol
from railwright.step_times import BUCKET_RATIO, TIMED_STEPS_MIN, WARM_UP_STEPS, RankSteps


def stepped(took_s: list[float]) -> RankSteps:
    """A rank whose steps took so long, after its first report."""
    rank = RankSteps(0, now_s=0.0)
    now_s = 100.0
    rank.report(step(0), now_s=now_s)
    for number, each_s in enumerate(took_s, 1):
        now_s += each_s
        rank.report(step(number), now_s=now_s)
    return rank


@pytest.mark.parametrize(
    ("steps", "p99_s"),
    [
        ([1.0] * 99 + [50.0], 1.0),
        ([1.0] * 98 + [50.0] * 2, 50.0),
        ([3.0] * 5, 3.0),
        ([0.0] * 5, 0.001),
        ([0.2] * 4 + [7.0], 7.0),
        ([0.2] * 4, 0.0),
    ],
)
def test_p99_is_that_of_the_steps_or_a_little_more(steps: list[float], p99_s: float) -> None:
    rank = stepped([1.0] * WARM_UP_STEPS + steps)
    assert rank.timed == len(steps)
    assert p99_s * 0.999 <= rank.p99_s() <= p99_s * BUCKET_RATIO


def test_first_steps_are_not_timed() -> None:
    assert stepped([600.0] * WARM_UP_STEPS).p99_s() == 0.0


def test_a_save_between_two_steps_is_no_step_time() -> None:
    rank = stepped([1.0] * (WARM_UP_STEPS + TIMED_STEPS_MIN))
    rank.report(phase(10, protocol.Phase.CHECKPOINTING), now_s=200.0)
    rank.report(phase(10, protocol.Phase.TRAINING), now_s=900.0)
    rank.report(step(11), now_s=901.0)
    assert rank.p99_s() == pytest.approx(1.0, rel=0.05)
    assert (rank.timed, rank.since_s) == (TIMED_STEPS_MIN + 1, 901.0)


def test_a_report_of_the_same_step_is_no_progress() -> None:
    rank = stepped([1.0])
    rank.report(step(1), now_s=150.0)
    assert rank.since_s == 101.0


def test_ranks_without_a_report_are_stalled_since_start() -> None:
    reported = Node(0, range(4), started_s=10.0).summary(70.0)
    assert (reported.reporting, reported.still_s, reported.lag_s) == (0, 60.0, 0.0)
    assert reported.phase is protocol.Phase.STARTING


def test_rank_that_only_saves_reports_that_phase() -> None:
    """Its phase is STARTING before and after, as it never reports a step."""
    node = Node(0, (0, 1))
    node.report(0, 1.0, step(1))
    node.report(1, 1.0, phase(0, protocol.Phase.CHECKPOINTING))
    assert node.summary(2.0).phase is protocol.Phase.CHECKPOINTING
    node.report(1, 3.0, phase(0, protocol.Phase.STARTING))
    reported = node.summary(4.0)
    assert (reported.phase, reported.reporting, reported.still_s) == (
        protocol.Phase.TRAINING,
        1,
        1.0,
    )


def test_stopped_rank_is_named_and_others_counted() -> None:
    node = Node(0, range(8, 12))
    for number in range(20):
        for rank in node.ranks:
            if rank != 10 or number <= 12:
                node.report(rank, float(number), step(number, total=19))
    reported = node.summary(100.0)
    assert (reported.newest, reported.slowest, reported.ranks, reported.behind) == (
        19,
        12,
        (10,),
        1,
    )
    assert (reported.lag_s, reported.still_s, reported.finishing) == (88.0, 81.0, True)
    del node.steps[10]
    assert node.summary(100.0).behind == 0


def test_a_heartbeat_does_not_grow_with_the_ranks() -> None:
    def size(ranks: int) -> int:
        node = Node(0, range(10_000, 10_000 + ranks))
        for number in range(10):
            for rank in node.ranks:
                node.report(rank, number + rank / 1e6, step(number))
        return len(protocol.encode(node.summary(30.0)))

    assert size(64) - size(8) < 32
    assert size(64) < 400


def test_a_rank_that_stops_in_its_first_steps_is_seen_to_lag() -> None:
    node = Node(0, (0, 1, 2))
    for number in range(40):
        node.report(0, float(number), step(number))
    # The first made a step and stopped; the second reported once and left the rest to rank 0.
    node.report(1, 0.0, step(0))
    node.report(1, 1.0, step(1))
    node.report(2, 0.0, step(0))
    reported = node.summary(40.0)
    assert (reported.ranks, reported.slowest, reported.lag_s, reported.lag_p99_s) == (
        (1,),
        1,
        39.0,
        0.0,
    )
