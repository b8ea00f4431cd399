"""Decide whether a running attempt hangs: no exit, no silence, and no further step.

Problem: a rank that is stopped, deadlocked or waits for a lost message does not end. Its launcher
goes on with heartbeats, its peers wait in a collective, and the job stays `Running` at one step.
But steps vary, and a checkpoint, an evaluation or a compilation takes far longer than a step.

Idea: the evidence comes from launchers, which receive every report of their ranks: the time since a
rank last made a step or changed its phase, and the step times so far. So a new leader needs no
history of its own. Three rules:

    still    no rank of any launcher made a step or changed its phase for longer than the limit:
             the ranks wait for each other
    lagging  one rank made no step for longer than the limit while others made several steps: the
             ranks do not wait for each other
    silent   no launcher that reports steps sends heartbeats, for longer than the limit, while its
             kubelet renews: it is stopped, or cut off

The limit depends on the phases of ranks. The phase of any rank counts for all, as scripts often
report from one rank only. Before the attempt ends, the launchers collect the stacks of their ranks:
a rank that does not respond is named in the cause.

`assessment` calls this. All times are seconds of one monotonic clock, or of a launcher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.model.evidence import Activity, ObservedRank, ObservedStack, ObservedSteps

STILL_S = 60.0
"""The least limit in training. Shorter pauses are common: a slow read, a garbage collection, a
restarted storage server."""

STEPS_P99_FACTOR = 5
"""How many times the 99th percentile of its steps a step may take."""

FIRST_STEPS_S = 1800.0
"""For the first steps after the first report, and for what follows the last step: compiling a large
model and building the index of a data set take up to 20 minutes, exporting a model no less."""

CHECKPOINTING_S = 1800.0
"""For one checkpoint: 10 TB at 10 GB/s take 17 minutes."""

EVALUATING_S = 3600.0
"""For one evaluation, and while a launcher is silent: its ranks may be evaluating."""

STACKS_S = 10.0
"""How long launchers may take to bring the stacks of their ranks: five heartbeats at the shortest
interval. With a longer one the count begins later."""

SILENT_EXTRA_S = 25.0
"""How much longer a limit of the user's is while a launcher is silent. A lost node is the better
cause, and found within 27 s at the longest interval of heartbeats; the least limit is 10 s."""

LAG_STEPS = 5
"""How many steps others must be ahead of a stalled rank: ranks that wait for each other are at most
two apart."""

RANKS_NAMED_MAX = 8
STACKS_LENGTH_MAX = 512
"""Characters of the stacks that are kept: what a cause in the ledger may have as last lines."""


PHASE_LIMITS_S = {
    Activity.STARTING: FIRST_STEPS_S,
    Activity.CHECKPOINTING: CHECKPOINTING_S,
    Activity.EVALUATING: EVALUATING_S,
}


@dataclass(frozen=True, slots=True)
class Watch:
    """The operator's own inputs of hang detection.

    ``timeout_s``: the user's progressTimeoutSeconds. ``training_s``: for how long no other phase
    than training was reported to this leader. ``requested_s``: since this leader requested stacks;
    None without a request.
    """

    timeout_s: int | None = None
    training_s: float = 0
    requested_s: float | None = None


UNWATCHED = Watch()


@dataclass(frozen=True, slots=True)
class StacksAwaited:
    """No step for longer than the limit: the ranks' stacks are wanted."""


@dataclass(frozen=True, slots=True)
class _Standstill:
    """A time without progress, and the limit that it exceeds. ``silent``: no responsive launcher
    reports steps."""

    time_s: float
    limit_s: float
    reason: str
    lagging: ObservedRank | None = None
    silent: bool = False


def assess(
    launchers: Sequence[ObservedRank], watch: Watch, *, cut: bool = False
) -> Cause | StacksAwaited | None:
    """The cause if the attempt hangs; StacksAwaited until they come; None if it goes on.

    ``launchers`` are those whose ranks still run, a row for each.
    ``cut``: the breaker is open, so silence alone ends nothing.
    """
    found = _standstill(launchers, watch) or (None if cut else _silence(launchers, watch))
    if found is None:
        return None
    if watch.requested_s is None:
        return StacksAwaited()
    # A silent launcher that is about to come back has the same time as one that brings stacks.
    waits = found.silent or any(
        launcher.responsive and launcher.steps is not None and launcher.steps.stacks is None
        for launcher in launchers
    )
    if waits and watch.requested_s < STACKS_S:
        return StacksAwaited()
    return _cause(launchers, found)


def _standstill(launchers: Sequence[ObservedRank], watch: Watch) -> _Standstill | None:
    reported = _reporting(launchers, watch)
    if not reported:
        return None
    seen = [steps for _, steps in reported]
    # Where some ranks wait while another evaluates, only their longest steps are longer.
    typical = max(seen, key=lambda steps: (steps.timed, -steps.p99_s))
    limit = _limit(launchers, seen, watch)
    limit_s, reason = limit.of(typical.p99_s)
    still_s = min(steps.still_s for steps in seen)
    if still_s > limit_s:
        return _Standstill(still_s, limit_s, reason)
    newest = max(steps.newest for _, steps in reported)
    for launcher, steps in reported:
        limit_s, reason = limit.of(steps.lag_p99_s)
        lag_s = min(steps.lag_s, watch.training_s)
        if lag_s > limit_s and newest - steps.slowest >= LAG_STEPS:
            return _Standstill(lag_s, limit_s, reason, lagging=launcher)
    return None


def _silence(launchers: Sequence[ObservedRank], watch: Watch) -> _Standstill | None:
    """The standstill that silent launchers prove while no responsive launcher reports steps. The
    first heartbeats to a new leader have no steps."""
    if _reporting(launchers, watch) or any(
        each.responsive and each.steps is None for each in launchers
    ):
        return None
    times_s = [_unheard_s(each) for each in launchers if not each.responsive]
    if not times_s:
        return None
    time_s = min(times_s)
    limit_s, reason = _limit(launchers, (), watch).of(p99_s=0)
    return _Standstill(time_s, limit_s, reason, silent=True) if time_s > limit_s else None


def _unheard_s(launcher: ObservedRank) -> float:
    """For how long no step of its ranks was reported. Where they report none, for how long it has
    been silent: it may be about to report their first."""
    reports = launcher.steps is not None and _reports_steps(launcher.steps)
    return (launcher.silent_s or 0) + (launcher.steps.still_s if launcher.steps and reports else 0)


def _reporting(
    launchers: Sequence[ObservedRank], watch: Watch
) -> list[tuple[ObservedRank, ObservedSteps]]:
    """The responsive launchers whose ranks report steps. If no rank of the attempt does, all of
    them if the user set a limit: they have made no step since the start."""
    responsive = [
        (each, each.steps) for each in launchers if each.responsive and each.steps is not None
    ]
    reporting = [(launcher, steps) for launcher, steps in responsive if _reports_steps(steps)]
    complete = len(responsive) == len(launchers)
    return responsive if not reporting and complete and watch.timeout_s is not None else reporting


@dataclass(frozen=True, slots=True)
class _Limit:
    """How long the attempt may make no progress, and why: ``fixed``, or by its steps in training.

    It is computed once for all launchers, which may be thousands.
    """

    fixed: tuple[float, str] | None = None

    def of(self, p99_s: float) -> tuple[float, str]:
        """The limit where 99 % of steps took this long; 0 if that is not known."""
        if self.fixed is not None:
            return self.fixed
        if not p99_s:
            return FIRST_STEPS_S, "for the first steps"
        reason = f"99 % of steps took at most {p99_s:.3g} s"
        return max(STILL_S, STEPS_P99_FACTOR * p99_s), reason


def _limit(
    launchers: Sequence[ObservedRank], reported: Sequence[ObservedSteps], watch: Watch
) -> _Limit:
    silent = any(not each.responsive or each.steps is None for each in launchers)
    if watch.timeout_s is not None:
        return _Limit(
            (watch.timeout_s + (SILENT_EXTRA_S if silent else 0), "progressTimeoutSeconds")
        )
    if silent:
        return _Limit((EVALUATING_S, "while a launcher is silent"))
    activity = max(
        (steps.activity for steps in reported), key=lambda activity: PHASE_LIMITS_S.get(activity, 0)
    )
    if activity is not Activity.TRAINING:
        return _Limit((PHASE_LIMITS_S[activity], f"in phase {activity.value}"))
    if any(steps.finishing for steps in reported):
        return _Limit((FIRST_STEPS_S, "after the last step"))
    return _Limit()


def _reports_steps(steps: ObservedSteps) -> bool:
    """Whether a rank reports steps, or at least its phase."""
    return steps.reporting > 0 or steps.activity is not Activity.STARTING


def _cause(launchers: Sequence[ObservedRank], found: _Standstill) -> Cause:
    silent = [
        (rank, f"rank {rank} on {launcher.node} did not answer, {stack.text}")
        for launcher, stack in _stacks(launchers)
        if not stack.answered
        for rank in stack.ranks
    ]
    named: dict[int, str] = {}
    for rank, text in (*silent, *_behind(launchers, found)):
        named.setdefault(rank, text)
    silent_ranks = [
        f"node rank {each.node_rank} on {each.node}" for each in launchers if not each.responsive
    ]
    parts = list(named.values())[:RANKS_NAMED_MAX]
    if len(named) > RANKS_NAMED_MAX:
        parts.append(f"{len(named) - RANKS_NAMED_MAX} more")
    if silent_ranks:
        parts.append(f"no heartbeat from {', '.join(silent_ranks[:RANKS_NAMED_MAX])}")
    who = "one rank has made no step" if found.lagging is not None else "no rank has made a step"
    if found.silent:
        who = "no step was reported"
    newest = max((each.steps.newest for each in launchers if each.steps), default=0)
    detail = "; ".join(parts) or f"all ranks that report are at step {newest}"
    return Cause(
        CauseCode.HUNG,
        f"{who} for {found.time_s:.0f} s, limit {found.limit_s:.0f} s ({found.reason}): {detail}",
        rank=next(iter(named), None),
        last_lines=_last_lines(launchers),
    )


def _behind(launchers: Sequence[ObservedRank], found: _Standstill) -> list[tuple[int, str]]:
    """The ranks at the lowest step of all, if others are further."""
    reported = [
        (launcher, launcher.steps)
        for launcher in ([found.lagging] if found.lagging is not None else launchers)
        if launcher.steps is not None and launcher.steps.reporting
    ]
    newest = max(
        (each.steps.newest for each in launchers if each.steps is not None and each.responsive),
        default=0,
    )
    lowest = min((steps.slowest for _, steps in reported), default=newest)
    if lowest >= newest:
        return []
    return [
        (rank, f"rank {rank} on {launcher.node} is at step {lowest}, the newest step is {newest}")
        for launcher, steps in reported
        if steps.slowest == lowest
        for rank in steps.ranks
    ]


def _stacks(launchers: Sequence[ObservedRank]) -> list[tuple[ObservedRank, ObservedStack]]:
    return [
        (launcher, stack)
        for launcher in launchers
        if launcher.steps is not None
        for stack in launcher.steps.stacks or ()
    ]


def _last_lines(launchers: Sequence[ObservedRank]) -> str:
    """One line for each distinct stack of all nodes, that of the fewest ranks first; together
    within STACKS_LENGTH_MAX."""
    groups: dict[tuple[bool, str], list[ObservedStack]] = {}
    for _, stack in _stacks(launchers):
        groups.setdefault((stack.answered, stack.text), []).append(stack)
    ordered = sorted(
        groups.items(), key=lambda group: (group[0][0], sum(s.count for s in group[1]), group[0][1])
    )
    lines: list[str] = []
    left = STACKS_LENGTH_MAX
    for number, ((answered, text), stacks) in enumerate(ordered):
        share = left // min(len(ordered) - number, 3)
        line = f"{_ranks(stacks)}: {text if answered else 'no answer, ' + text}"
        lines.append(line[: max(0, share - 1)])
        left -= len(lines[-1]) + 1
    return "\n".join(line for line in lines if line)


def _ranks(stacks: Sequence[ObservedStack]) -> str:
    ranks = sorted(rank for stack in stacks for rank in stack.ranks)
    named = ranks[:RANKS_NAMED_MAX]
    more = sum(stack.count for stack in stacks) - len(named)
    word = "rank" if len(named) == 1 and more <= 0 else "ranks"
    return f"{word} {', '.join(map(str, named))}" + (f" and {more} more" if more > 0 else "")
