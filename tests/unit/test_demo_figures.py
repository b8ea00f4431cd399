"""The demo's figures: from what a training printed to bars that hold or do not."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from railwright_demo import figures, training_log
from railwright_demo.figures import Figures
from railwright_demo.milestones import Milestones
from railwright_demo.scene import Job, Pod, Scene

GOOD = Figures(
    succeeded=True,
    steps=60,
    attempts=2,
    detect_seconds=18.0625,
    resume_seconds=28.5,
    first_start_seconds=9.0,
    steps_redone=4,
    checkpoint_interval_steps=10,
    losses_equal_uninterrupted=True,
    first_loss=5.25,
    final_loss=0.34,
    pods=4,
    nodes=5,
)


def test_losses_are_read_from_whole_lines_and_from_nothing_else() -> None:
    text = (
        "railwright: all nodes are there attempt=1 world=4 rank=0\n"
        "step=1 loss=5.254887104034424\n"
        "a step=9 loss=9.0\n"
        "step=2 loss=1e-05\n"
        "step=3 loss=0.1"
    )
    assert training_log.losses_in(text) == {1: 5.254887104034424, 2: 1e-05}


def test_redone_steps_are_those_beyond_the_resume_point() -> None:
    """The steps after the checkpoint of the second attempt count as redone."""
    assert figures.redone({1: range(1, 35), 2: range(31, 61)}) == 4
    assert figures.redone({1: range(1, 31), 2: range(31, 61)}) == 0
    assert figures.redone({1: range(1, 35), 2: ()}) is None
    assert figures.redone({1: range(1, 35)}) is None


def test_losses_are_equal_only_bit_for_bit_and_at_every_step() -> None:
    whole = {1: 3.0, 2: 2.0, 3: 1.0}
    interrupted = {1: {1: 3.0, 2: 2.0}, 2: {2: 2.0, 3: 1.0}}
    assert figures.equal(interrupted, whole, steps=3)
    next_to_it = math.nextafter(2.0, 3.0)
    assert not figures.equal({**interrupted, 1: {1: 3.0, 2: next_to_it}}, whole, steps=3)
    assert not figures.equal({1: {1: 3.0}, 2: {3: 1.0}}, whole, steps=3)
    assert not figures.equal(interrupted, {1: 3.0, 2: 2.0}, steps=3)
    assert not figures.equal(interrupted, whole, steps=4)
    assert not figures.equal({}, {}, steps=3)


def test_a_run_within_all_bars_misses_none() -> None:
    assert figures.missed(GOOD, simulated=False) == []
    assert json.loads(GOOD.line())["detect_seconds"] == 18.062
    assert json.loads(GOOD.line())["first_loss"] == 5.25


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        (replace(GOOD, succeeded=False), "did not succeed"),
        (replace(GOOD, attempts=3), "3 attempts, expected 2"),
        (replace(GOOD, detect_seconds=30.1), "detect_seconds is 30.1, at most 30"),
        (replace(GOOD, detect_seconds=None), "detect_seconds is None, at most 30"),
        (replace(GOOD, resume_seconds=39.1), "resume_seconds is 39.1, at most 30 + "),
        (replace(GOOD, resume_seconds=None), "resume_seconds is None, at most 30 + "),
        (replace(GOOD, first_start_seconds=None), "the first start was not seen"),
        (replace(GOOD, steps_redone=11), "steps_redone is 11, at most 10"),
        (replace(GOOD, losses_equal_uninterrupted=False), "not those of the uninterrupted run"),
        (replace(GOOD, final_loss=2.63), "the final loss 2.63 is more than half"),
    ],
)
def test_each_bar_that_does_not_hold_is_named(worse: Figures, words: str) -> None:
    assert any(words in stated for stated in figures.missed(worse, simulated=False))


def test_a_simulation_is_not_held_against_what_it_cannot_have() -> None:
    simulated = replace(
        GOOD,
        resume_seconds=None,
        first_start_seconds=None,
        losses_equal_uninterrupted=None,
        first_loss=None,
        final_loss=None,
    )
    assert figures.missed(simulated, simulated=True) == []
    assert figures.missed(replace(simulated, detect_seconds=31.0), simulated=True)


def test_times_count_from_gang_bound_and_from_link_down() -> None:
    """The start counts from the last binding, the recovery from the cut of the link."""
    noted = Milestones(num_pods=2)
    bound = Pod("ddp-worker-0-1", attempt=1, node_rank=0, node="node-a1")
    waiting = Pod("ddp-worker-1-1", attempt=1, node_rank=1)
    noted.saw(Scene(0.0, pods=(bound, waiting)), 100.0)
    noted.saw(Scene(1.0, pods=(bound, replace(waiting, node="node-a2"))), 101.0)
    noted.saw(Scene(2.0, pods=(bound, replace(waiting, node="node-a2"))), 102.0)
    noted.stepped(1, 109.0)
    noted.stepped(1, 110.0)
    assert noted.first_start_s() == 8.0

    noted.disturbed_s = 120.0
    dead = frozenset({"node-a2"})
    noted.saw(Scene(21.0, Job(ended_attempt=1), dead=dead), 121.0)
    assert noted.since_disturbed_s(noted.detected_s) is None
    noted.saw(Scene(39.0, Job(ended_attempt=1, lost_nodes=("node-a2",)), dead=dead), 139.0)
    assert noted.since_disturbed_s(noted.detected_s) == 19.0
