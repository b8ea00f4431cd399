"""Jobs whose steps vary are left alone, and a rank that stops is found within the limit.

Steps are generated with their times, saves and evaluations among them, announced by all ranks or by
rank 0 alone. Reports go through the launchers' own bookkeeping, and every two seconds the scheduler
judges what heartbeats say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from fixtures.hanging import Node, phase, step
from railwright import protocol, step_times
from railwright_scheduler.attempt import hang
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.hang import StacksAwaited, Watch
from railwright_scheduler.model.evidence import Activity, ObservedRank

BEAT_S = protocol.HEARTBEAT_INTERVAL_S
RANKS = 4
LONGEST_S = {
    protocol.Phase.CHECKPOINTING: hang.CHECKPOINTING_S,
    protocol.Phase.EVALUATING: hang.EVALUATING_S,
}


@dataclass(frozen=True)
class Segment:
    """Steps that take so long each, then a pause in a phase, announced or part of a step.

    Meanwhile the launcher of a node may be ``silent``, and a new leader may begin (``forgets``).
    """

    steps_s: tuple[float, ...]
    pause_s: float
    pause: protocol.Phase | None
    by_rank_0_alone: bool
    silent: int | None
    forgets: bool


SEGMENTS = st.builds(
    Segment,
    st.lists(st.floats(0.01, 59.0), min_size=1, max_size=12).map(tuple)
    | st.floats(0.01, 1000.0).flatmap(
        lambda typical: st.lists(st.floats(typical / 2, typical * 2), min_size=1, max_size=12).map(
            tuple
        )
    ),
    st.floats(0.0, 1700.0),
    st.sampled_from((None, protocol.Phase.CHECKPOINTING, protocol.Phase.EVALUATING)),
    st.booleans(),
    st.sampled_from((None, None, 0, 1)),
    st.booleans(),
)


@dataclass
class Run:
    """A job of two nodes with two ranks each, that only what is healthy happens to."""

    segments: Sequence[Segment]
    reporters: int

    def __post_init__(self) -> None:
        self.nodes = [Node(0, (0, 1)), Node(1, (2, 3))]
        self.now_s = 0.0
        self.training_since_s = 0.0
        self.steps_s: list[float] = []
        self.unreported: dict[int, ObservedRank] = {}
        self.silent_since_s = 0.0
        self.number = 0

    def play(self) -> list[Cause | StacksAwaited]:
        """All verdicts but "it goes on"."""
        self.report(step(0))
        return [verdict for segment in self.segments for verdict in self.segment(segment)]

    def segment(self, segment: Segment) -> Iterator[Cause | StacksAwaited]:
        self.listen(silent=segment.silent, forgets=segment.forgets)
        yield from self.steps_and_pause(segment)
        self.listen(silent=None, forgets=False)

    def listen(self, *, silent: int | None, forgets: bool) -> None:
        """From now on this node's launcher is not heard, for an hour at most; what it said last is
        known, or not."""
        self.unreported = {}
        self.silent_since_s = self.now_s
        if silent is not None:
            last = self.nodes[silent].launcher(self.now_s)
            steps = None if forgets else last.steps
            self.unreported[silent] = replace(last, silence_limit_s=0.0, steps=steps)
        if forgets:
            self.training_since_s = self.now_s

    def steps_and_pause(self, segment: Segment) -> Iterator[Cause | StacksAwaited]:
        for took_s in segment.steps_s:
            yield from self.step(min(took_s, self.allowed_s()))
        if segment.pause is None:
            yield from self.step(min(segment.pause_s, self.allowed_s()))
            return
        only = 1 if segment.by_rank_0_alone else RANKS
        self.report(phase(self.number, segment.pause), ranks=only)
        yield from self.wait(min(segment.pause_s, 0.9 * LONGEST_S[segment.pause]))
        self.report(phase(self.number, protocol.Phase.TRAINING), ranks=only)

    def allowed_s(self) -> float:
        """The longest that a step may take unannounced: by the rule itself, on true times."""
        timed = sorted(self.steps_s[step_times.WARM_UP_STEPS :])
        if len(timed) < step_times.TIMED_STEPS_MIN:
            return hang.FIRST_STEPS_S - 3 * BEAT_S
        p99_s = timed[len(timed) - len(timed) // 100 - 1]
        return max(hang.STILL_S, hang.STEPS_P99_FACTOR * p99_s) - BEAT_S

    def step(self, took_s: float) -> Iterator[Cause | StacksAwaited]:
        yield from self.wait(took_s)
        self.steps_s.append(took_s)
        self.number += 1
        self.report(step(self.number))

    def report(self, progress: protocol.Progress, *, ranks: int = RANKS) -> None:
        for rank in range(min(ranks, self.reporters)):
            self.nodes[rank // 2].report(rank, self.now_s, progress)

    def wait(self, time_s: float) -> Iterator[Cause | StacksAwaited]:
        """What the last heartbeat of this time leads to; one before it leads to no more."""
        end_s = self.now_s + time_s
        beat_s = end_s // BEAT_S * BEAT_S
        if beat_s > self.now_s:
            self.now_s = beat_s
            verdict = self.assess()
            if verdict is not None:
                yield verdict
        self.now_s = end_s

    def assess(self) -> Cause | StacksAwaited | None:
        silent_s = self.now_s - self.silent_since_s
        unreported = self.unreported if silent_s <= hang.EVALUATING_S else {}
        launchers = [
            replace(unreported[node.node_rank], silent_s=silent_s)
            if node.node_rank in unreported
            else node.launcher(self.now_s)
            for node in self.nodes
        ]
        if any(its.steps and its.steps.activity in PAUSES for its in launchers):
            self.training_since_s = self.now_s
        training_s = self.now_s - self.training_since_s
        return hang.assess(launchers, Watch(training_s=training_s, requested_s=hang.STACKS_S))


PAUSES = (Activity.CHECKPOINTING, Activity.EVALUATING)


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(SEGMENTS, min_size=1, max_size=8), st.sampled_from((1, RANKS)))
def test_healthy_job_whose_steps_vary_never_hangs(segments: list[Segment], reporters: int) -> None:
    assert Run(segments, reporters).play() == []


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(SEGMENTS, min_size=1, max_size=8), st.sampled_from((1, RANKS)))
def test_job_that_stops_is_found_within_its_limit(segments: list[Segment], reporters: int) -> None:
    run = Run(segments, reporters)
    run.play()
    assert list(run.wait(run.allowed_s())) == []
    # The launcher rounds the 99th percentile up, and a heartbeat says it.
    rounded_s = (step_times.BUCKET_RATIO - 1) * run.allowed_s()
    assert len(list(run.wait(rounded_s + 3 * BEAT_S))) == 1


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(SEGMENTS, min_size=1, max_size=8),
    st.sampled_from((1, RANKS)),
    st.lists(st.booleans(), min_size=2, max_size=2),
)
def test_job_of_silent_launchers_is_found_within_an_hour(
    segments: list[Segment], reporters: int, forgets: list[bool]
) -> None:
    run = Run(segments, reporters)
    run.play()
    last = [node.launcher(run.now_s) for node in run.nodes]
    for silent_s, hangs in ((hang.EVALUATING_S - BEAT_S, False), (hang.EVALUATING_S + 1, True)):
        its = [
            replace(each, steps=None if unknown else each.steps, silent_s=silent_s)
            for each, unknown in zip(last, forgets, strict=True)
        ]
        found = hang.assess(its, Watch(requested_s=hang.STACKS_S))
        assert isinstance(found, Cause) is hangs


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(st.floats(0.1, 11.0), min_size=20, max_size=40), st.integers(0, RANKS - 1))
def test_rank_left_behind_by_others_is_found(took_s: list[float], stopped: int) -> None:
    """Ranks that do not wait for each other: one stops, and is named."""
    run = Run((), RANKS)
    run.report(step(0))
    for each_s in took_s:
        assert list(run.step(each_s)) == []
    stopped_s = run.now_s
    for number in itertools.count(run.number + 1):
        for verdict in run.wait(BEAT_S):
            assert isinstance(verdict, Cause)
            assert verdict.rank == stopped
            assert hang.STILL_S <= run.now_s - stopped_s <= hang.STILL_S + 3 * BEAT_S
            return
        for rank in set(range(RANKS)) - {stopped}:
            run.nodes[rank // 2].report(rank, run.now_s, step(number))
