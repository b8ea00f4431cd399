"""An attempt hangs when its steps stall for longer than its own steps and phases explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fixtures.attempts import crash, rank
from fixtures.hanging import training
from railwright_scheduler.attempt import assessment, hang
from railwright_scheduler.attempt.assessment import Ended, Ongoing
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.hang import (
    CHECKPOINTING_S,
    EVALUATING_S,
    FIRST_STEPS_S,
    LAG_STEPS,
    SILENT_EXTRA_S,
    STACKS_S,
    STILL_S,
    StacksAwaited,
    Watch,
)
from railwright_scheduler.model.evidence import Activity, ObservedRank, ObservedStack, ObservedSteps

ASKED = Watch(training_s=10_000, requested_s=STACKS_S)
KINDS = range(4)
SAYS_NOTHING = ObservedSteps(still_s=100_000)


def launchers(*steps: ObservedSteps | None, unreported: tuple[int, ...] = ()) -> list[ObservedRank]:
    return [
        rank(node_rank, steps=its, silent_s=None if node_rank in unreported else 0)
        for node_rank, its in enumerate(steps)
    ]


def cause(
    *steps: ObservedSteps | None, watch: Watch = ASKED, unreported: tuple[int, ...] = ()
) -> Cause:
    found = hang.assess(launchers(*steps, unreported=unreported), watch)
    assert isinstance(found, Cause), found
    return found


def limit_s(steps: ObservedSteps, watch: Watch = ASKED, **others: Any) -> float:
    """The longest standstill that is no hang, by bisection."""
    low, high = 0, 200_000
    while high - low > 1:
        middle = (low + high) // 2
        its = launchers(replace(steps, still_s=middle), **others)
        low, high = (middle, high) if hang.assess(its, watch) is None else (low, middle)
    return low


@pytest.mark.parametrize(
    ("p99_s", "limit"), [(0.001, STILL_S), (12.0, STILL_S), (13.0, 65.0), (600.0, 3000.0)]
)
def test_limit_is_a_minute_or_five_times_p99(p99_s: float, limit: float) -> None:
    assert limit_s(training(p99_s=p99_s)) == limit


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"activity": Activity.CHECKPOINTING}, CHECKPOINTING_S),
        ({"activity": Activity.EVALUATING}, EVALUATING_S),
        ({"activity": Activity.STARTING}, FIRST_STEPS_S),
        ({"p99_s": 0.0}, FIRST_STEPS_S),
        ({"finishing": True}, FIRST_STEPS_S),
    ],
)
def test_phases_have_limits_of_their_own(change: dict[str, Any], limit: float) -> None:
    assert limit_s(training(**change)) == limit
    assert limit_s(training(**change), replace(ASKED, timeout_s=30)) == 30


def test_phase_of_one_rank_counts_for_all() -> None:
    """Scripts often say from rank 0 alone that they evaluate; the others wait in training."""
    saves = training(activity=Activity.EVALUATING, still_s=600, newest=1001)
    assert hang.assess(launchers(saves, training(still_s=601, lag_s=601)), ASKED) is None


def test_script_without_reports_never_hangs() -> None:
    assert hang.assess(launchers(SAYS_NOTHING, SAYS_NOTHING), ASKED) is None
    assert hang.assess(launchers(None, None), ASKED) is None


def test_script_without_reports_hangs_by_users_limit() -> None:
    found = cause(SAYS_NOTHING, SAYS_NOTHING, watch=replace(ASKED, timeout_s=99_999))
    assert found.message.startswith("no rank has made a step for 100000 s, limit 99999 s (progress")
    partly = launchers(SAYS_NOTHING, SAYS_NOTHING, unreported=(1,))
    assert hang.assess(partly, replace(ASKED, timeout_s=10)) is None


def test_rank_that_alone_reports_counts_for_all() -> None:
    going, hung = (launchers(training(still_s=s), SAYS_NOTHING) for s in (59, 61))
    assert hang.assess(going, ASKED) is None
    assert isinstance(hang.assess(hung, ASKED), Cause)


def test_save_of_script_without_steps_has_its_limit() -> None:
    saves = ObservedSteps(activity=Activity.CHECKPOINTING)
    assert limit_s(saves) == CHECKPOINTING_S


def test_one_rank_that_goes_on_keeps_all_from_hanging() -> None:
    """Unless the others are left behind: see the lagging rank."""
    assert hang.assess(launchers(training(still_s=1), training(still_s=500)), ASKED) is None


def test_rank_that_lags_while_others_go_on_hangs() -> None:
    ahead = training(newest=1000 + LAG_STEPS, still_s=0.1)
    behind = training(lag_s=61, ranks=(3,), still_s=0.2, newest=1000 + LAG_STEPS, behind=1)
    found = cause(ahead, behind)
    assert found.rank == 3
    assert found.message == (
        "one rank has made no step for 61 s, limit 60 s (99 % of steps took at most 0.1 s): "
        "rank 3 on n1 is at step 1000, the newest step is 1005"
    )
    nearly = replace(ahead, newest=1000 + LAG_STEPS - 1)
    waits = replace(behind, newest=1000 + LAG_STEPS - 1)
    assert hang.assess(launchers(nearly, waits), ASKED) is None


def test_lag_counts_from_the_last_phase_of_this_leader() -> None:
    """Others wait for a rank that evaluates; when it goes on, they stood still for long."""
    ahead, behind = training(newest=1010), training(lag_s=600)
    watch = replace(ASKED, training_s=2)
    assert hang.assess(launchers(ahead, behind), watch) is None
    assert isinstance(hang.assess(launchers(ahead, behind), ASKED), Cause)


def test_silent_launcher_may_be_evaluating() -> None:
    still = training(still_s=EVALUATING_S)
    assert hang.assess(launchers(still, training(), unreported=(1,)), ASKED) is None
    found = cause(replace(still, still_s=EVALUATING_S + 1), training(), unreported=(1,))
    assert found.message.endswith(
        "(while a launcher is silent): no heartbeat from node rank 1 on n1"
    )


def test_rank_that_falls_silent_makes_no_other_suspected() -> None:
    """The others report nothing and have stood still since their start, as far as they say."""
    assert hang.assess(launchers(training(), SAYS_NOTHING, unreported=(0,)), ASKED) is None


def silent(steps: ObservedSteps | None, silent_s: float, node_rank: int = 0) -> ObservedRank:
    return rank(node_rank, steps=steps, silent_s=silent_s)


OTHERS_SAY_NOTHING = launchers(None, SAYS_NOTHING, SAYS_NOTHING, SAYS_NOTHING)[1:]


@pytest.mark.parametrize("others", [[], OTHERS_SAY_NOTHING])
@pytest.mark.parametrize(
    ("steps", "still_s"), [(training(still_s=8), 8), (SAYS_NOTHING, 0), (None, 0)]
)
@pytest.mark.parametrize(
    ("timeout_s", "limit"),
    [(None, EVALUATING_S), (300, 300 + SILENT_EXTRA_S), (10, 10 + SILENT_EXTRA_S)],
)
def test_silent_launcher_of_a_living_node_hangs(
    others: list[ObservedRank],
    steps: ObservedSteps | None,
    still_s: float,
    timeout_s: int | None,
    limit: float,
) -> None:
    """It is stopped or cut off, and its kubelet renews. It alone reports, or never sent a
    message."""
    watch = replace(ASKED, timeout_s=timeout_s)
    assert hang.assess([silent(steps, limit - still_s), *others], watch) is None
    its = [silent(steps, limit - still_s + 1), *others]
    found = hang.assess(its, watch)
    assert isinstance(found, Cause)
    assert found.code is CauseCode.HUNG
    assert found.message.startswith(
        f"no step was reported for {limit + 1:.0f} s, limit {limit:.0f}"
    )
    assert found.message.endswith(": no heartbeat from node rank 0 on n0")
    assert hang.assess(its, watch, cut=True) is None


def test_silence_counts_from_the_last_heartbeat() -> None:
    its = [silent(training(), 2 * EVALUATING_S), silent(None, 10, node_rank=1)]
    assert hang.assess(its, ASKED) is None


def test_first_heartbeat_to_a_new_leader_keeps_the_attempt() -> None:
    """It has not reported steps yet."""
    its = [silent(None, 2 * EVALUATING_S), rank(1, steps=None)]
    assert hang.assess(its, ASKED) is None


def test_lag_before_the_silence_makes_no_rank_suspected() -> None:
    """The other rank evaluated, so that it lagged, when its launchers were heard last."""
    its = [silent(training(newest=2000), 60), silent(training(lag_s=3601), 60, node_rank=1)]
    assert hang.assess(its, ASKED) is None


def test_silent_launcher_has_time_to_come_back() -> None:
    its = [silent(training(), EVALUATING_S + 1)]
    assert hang.assess(its, Watch()) == StacksAwaited()
    assert hang.assess(its, Watch(requested_s=STACKS_S - 1)) == StacksAwaited()
    assert isinstance(hang.assess(its, Watch(requested_s=STACKS_S)), Cause)


def test_lost_node_is_found_before_a_users_short_limit() -> None:
    steps = training()
    watch = replace(ASKED, timeout_s=10)
    assert limit_s(steps, watch) == 10
    several = launchers(replace(steps, still_s=10 + SILENT_EXTRA_S), steps, unreported=(1,))
    assert hang.assess(several, watch) is None


def test_new_leader_requests_stacks_first() -> None:
    """It heard a moment ago that steps have stood still for an hour, and takes one more look."""
    its = launchers(training(still_s=3600))
    assert hang.assess(its, Watch()) == StacksAwaited()
    assert hang.assess(its, Watch(requested_s=STACKS_S - 1)) == StacksAwaited()
    assert isinstance(hang.assess(its, Watch(requested_s=STACKS_S)), Cause)


def test_verdict_follows_once_all_launchers_brought_stacks() -> None:
    watch = Watch(requested_s=2)
    shown = training(still_s=61, stacks=())
    assert hang.assess(launchers(shown, training(still_s=61)), watch) == StacksAwaited()
    assert isinstance(hang.assess(launchers(shown, shown), watch), Cause)


def test_rank_that_does_not_answer_is_named_first() -> None:
    waits = ObservedStack((0, 1, 3), 3, answered=True, text="all_reduce d.py:9 < main train.py:5")
    stopped = ObservedStack((2,), 1, answered=False, text="its process is stopped")
    found = cause(
        training(still_s=63, ranks=(0, 1), stacks=(replace(waits, ranks=(0, 1), count=2),)),
        training(still_s=62, ranks=(2, 3), stacks=(stopped, replace(waits, ranks=(3,), count=1))),
    )
    assert (found.code, found.rank, found.node, found.nodes) == (CauseCode.HUNG, 2, None, ())
    assert found.message.endswith(": rank 2 on n1 did not answer, its process is stopped")
    assert found.last_lines.splitlines() == [
        "rank 2: no answer, its process is stopped",
        "ranks 0, 1, 3: all_reduce d.py:9 < main train.py:5",
    ]


def test_ranks_behind_are_named_and_bounded() -> None:
    behind = training(newest=999, slowest=999, ranks=tuple(range(8)), still_s=70)
    found = cause(behind, training(still_s=70), replace(behind, ranks=(40, 41)))
    assert found.message.count("is at step 999, the newest step is 1000") == 8
    assert found.message.endswith("; 2 more")


def test_stacks_are_bounded_whatever_ranks_show() -> None:
    shown = [
        [
            ObservedStack((node + kind * 100,), 1, kind % 2 == 0, f"{kind}" + "x" * 4000)
            for kind in KINDS
        ]
        for node in range(100)
    ]
    found = cause(*(training(still_s=99, stacks=tuple(stacks)) for stacks in shown))
    assert len(found.last_lines) <= hang.STACKS_LENGTH_MAX
    assert found.last_lines.startswith("ranks 100, 101, 102, 103, 104, 105, 106, 107 and 92 more: ")
    assert len(found.last_lines.splitlines()) == len(KINDS)


def test_assessment_requests_stacks_then_ends_the_attempt() -> None:
    hung = rank(0, steps=training(still_s=61))
    well = rank(0, steps=training(still_s=59))

    def assess(*ranks: ObservedRank, watch: Watch = ASKED) -> assessment.Assessment:
        return assessment.assess(ranks, started=True, age_s=100, watch=watch)

    assert assess(well) == Ongoing()
    assert assess(hung, watch=Watch()) == Ongoing(wants_stacks=True)
    verdict = assess(hung)
    assert isinstance(verdict, Ended)
    assert (verdict.cause.code, verdict.cause.counted) == (CauseCode.HUNG, False)
    # A crash that is judged, and a rank that is done, are something else.
    assert assess(hung, crash(1, age_s=1.0)) != verdict
    assert assess(hung, rank(1, done=True, steps=training(still_s=9_000))) == verdict


class Counted(list[ObservedRank]):
    """Launchers, and how often they are gone through."""

    reads = 0

    def __iter__(self) -> Iterator[ObservedRank]:
        self.reads += 1
        return super().__iter__()


def test_work_grows_with_the_number_of_launchers() -> None:
    """A gang may have 16,384 launchers, and is assessed in every scheduling cycle."""
    few, many = Counted(launchers(*[training()] * 4)), Counted(launchers(*[training()] * 64))
    assert hang.assess(few, ASKED) is hang.assess(many, ASKED) is None
    assert few.reads == many.reads
