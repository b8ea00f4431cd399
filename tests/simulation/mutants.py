"""The product with one thing taken away at a time: each must break an invariant, or is not needed.

A mutant replaces one function of the core, of the simulated leader or of the in-memory API. It is
caught when a seed breaks an invariant. One that survives means that an invariant is missing, or
that the code it took away does nothing. Mutants of the operator's own shell are in
``shell_mutants``: each is caught when a named test fails with it.

``python mutants.py`` tries seeds from 0 on; the last line is one JSON object. The tests try the
first few and those that are kept, which is cheap.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from railwright_scheduler import assume, cancellation, commit_plan, double_booking, pending, pre_run
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt import breaker, gang, hang, record, resume_points
from railwright_scheduler.attempt.breaker import CLOSED
from railwright_scheduler.attempt.gang import BindPod, CreatePod, DeletePod, ObservedGang, Pod, Step
from railwright_scheduler.attempt.ledger import Entry, EntryState, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ObservedAttempt, ObservedJob
from railwright_scheduler.policy.queue_window import QueueWindow
from railwright_scheduler.simulator import leader
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.run import RunError, run
from railwright_scheduler.simulator.view import View
from simulation import shell_mutants
from simulation.record_changes import (
    counts_twice,
    groups_share_points,
    revoked_commits_count,
    spends_budget,
)
from simulation.shell_mutants import SHELL_MUTANTS
from simulation.short_cycles import short_cycles
from simulation.unisolated import unisolated

STEPS = 500
SEEDS_MAX = 3000

Original = Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is changed where, by ``change`` of the original; ``beside`` is an option of ``run``."""

    name: str
    owner: Any
    attribute: str
    change: Callable[[Original], Original]
    short: bool = False
    beside: str = ""

    @contextlib.contextmanager
    def planted(self) -> Iterator[None]:
        """The product with it."""
        original = self.owner.__dict__[self.attribute]
        setattr(self.owner, self.attribute, self.change(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


@dataclass(frozen=True, slots=True)
class Caught:
    """After how many seeds, and what broke."""

    seeds: int
    message: str


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Caught | None:
    """Run seed after seed with it; None if it survives all. An exception that the mutant itself
    raises is no broken invariant: it is raised here."""
    with mutant.planted(), unisolated(), short_cycles(enabled=mutant.short):
        for count, seed in enumerate(seeds, 1):
            try:
                run(seed, steps=STEPS, **({mutant.beside: True} if mutant.beside else {}))
            except RunError as broken:
                return Caught(count, str(broken).partition("\n")[0])
    return None


def constant(value: object) -> Callable[[Original], Original]:
    """A function that does not look."""
    return lambda original: lambda *given, **named: value


def unversioned_ledger(original: Original) -> Original:
    def put(api: Api, ledger: Ledger, version: int, **named: Any) -> Any:
        return original(api, ledger, api.ledger_version, **named)

    return put


def unversioned_record(original: Original) -> Original:
    def put(api: Api, uid: str, now: JobRecord, version: int) -> Any:
        return original(api, uid, now, api.jobs.versions.get(uid, version))

    return put


def same_epoch(original: Original) -> Original:
    return lambda ledger, holder: replace(ledger, holder=holder)


def epoch_unread(original: Original) -> Original:
    def take(store: Any, found: Ledger, version: int) -> None:
        original(store, found, version)
        store.deposed = False

    return take


def unconfirmed(original: Original) -> Original:
    def confirm(store: Any) -> Generator[Any, None, bool]:
        yield from ()
        return True

    return confirm


def deletes_first(original: Original) -> Original:
    """Delete, and only then, with a later scheduling, write the abort."""

    def step(entry: Entry, seen: ObservedGang) -> Step:
        cause = gang._why_abort(entry, seen) if entry.cause is None else None
        live = [pod for pod in seen.pods if not pod.terminal and not pod.deleting]
        if cause is not None and live:
            return Step(entry, tuple(DeletePod(entry, pod) for pod in live))
        done: Step = original(entry, seen)
        return done

    return step


def with_seen(**changes: Any) -> Callable[[Original], Original]:
    """A step of a gang that sees something else than there is."""
    return lambda original: (
        lambda entry, seen: original(
            entry, replace(seen, **{name: change(entry, seen) for name, change in changes.items()})
        )
    )


def binds_at_once(original: Original) -> Original:
    def commit(entry: Entry, seen: ObservedGang) -> Step:
        step: Step = original(entry, seen)
        unbound = [pod for pod in seen.pods if not pod.node and not pod.deleting]
        if any(isinstance(action, CreatePod) for action in step.actions):
            return Step(step.entry, (*step.actions, *(BindPod(entry, pod) for pod in unbound)))
        return step

    return commit


def settles_half(original: Original) -> Original:
    def commit(entry: Entry, seen: ObservedGang) -> Step:
        bound = [pod for pod in seen.pods if pod.node]
        done: Step = original(entry, seen)
        return Step(None) if bound and seen.recorded_attempt else done

    return commit


def forgets_abort(original: Original) -> Original:
    def step(entry: Entry, seen: ObservedGang) -> Step:
        done: Step = original(entry, seen)
        aborted = entry.cause is None and done.entry is not None and done.entry.cause is not None
        return Step(None) if aborted else done

    return step


def leaves_dying(original: Original) -> Original:
    def abort(entry: Entry, seen: ObservedGang) -> Step:
        staying = tuple(pod for pod in seen.pods if not pod.deleting)
        done: Step = original(entry, replace(seen, pods=staying))
        return done

    return abort


def deletes_again(original: Original) -> Original:
    def abort(entry: Entry, seen: ObservedGang) -> Step:
        pods = tuple(replace(pod, deleting=False) for pod in seen.pods)
        done: Step = original(entry, replace(seen, pods=pods))
        return done

    return abort


def owes_nothing(state: EntryState) -> Callable[[Original], Original]:
    return lambda original: (
        lambda entry, pods: [] if entry.state is state else original(entry, pods)
    )


def ended_ranks_give_back(original: Original) -> Original:
    def unbound(entry: Entry, pods: Sequence[Pod]) -> list[int]:
        running = [replace(pod, terminal=False) for pod in pods if pod.node]
        others = [pod for pod in pods if not pod.node]
        assumed: list[int] = original(entry, [*running, *others])
        return assumed

    return unbound


def nodes_look_empty(original: Original) -> Original:
    return lambda world, entries, blocked=(): tuple(replace(node, used={}) for node in world.nodes)


def debts_forgotten(original: Original) -> Original:
    return lambda world, entries, blocked=(): tuple(world.nodes)


def does_not_wait_for_deletes(original: Original) -> Original:
    return lambda seen, entries, attempts, alive: original(
        seen, entries, dict[Any, ObservedAttempt](), alive
    )


def retries_at_once(original: Original) -> Original:
    return lambda seen, entries, attempts, alive: original(
        replace(seen, record=replace(seen.record, ended=seen.record.attempt)),
        entries,
        attempts,
        alive,
    )


def number_reused(original: Original) -> Original:
    return lambda seen, _: replace(seen.job, attempt=max(seen.record.attempt, 1))


def sweeps_living(original: Original) -> Original:
    def sweep(plan: Any, jobs: dict[str, ObservedJob]) -> None:
        over = {
            uid: replace(seen, record=replace(seen.record, ended=seen.record.attempt))
            for uid, seen in jobs.items()
        }
        original(plan, over)

    return sweep


def ignores_suspend(original: Original) -> Original:
    return lambda entry, seen, **now: original(
        entry, seen and replace(seen, suspend=False, spec_hash=entry.spec_hash), **now
    )


def ignores_deletion(original: Original) -> Original:
    return lambda entry, seen, **now: None if seen is None else original(entry, seen, **now)


def ignores_changes(original: Original) -> Original:
    return lambda e, seen, **now: original(e, seen and replace(seen, spec_hash=e.spec_hash), **now)


def takes_final(original: Original) -> Original:
    """Forget that a job has ended when its line is made."""

    def needs_attempt(seen: ObservedJob, entries: Any, attempts: Any, alive: Any) -> bool:
        queued = replace(seen, record=replace(seen.record, phase=Phase.QUEUED))
        return bool(original(queued, entries, attempts, alive))

    return needs_attempt


def suspended_starts(original: Original) -> Original:
    return lambda seen, *given: original(replace(seen, suspend=False), *given)


def training_limits(original: Original) -> Original:
    return dict.fromkeys(original, hang.STILL_S)


def front_alone(original: Original) -> Original:
    return lambda window, position: window._is_front


def position_forgotten(original: Original) -> Original:
    return lambda window, position, limit: original(window, None, limit)


MUTANTS = (
    Mutant("the ledger is written whatever its version", Api, "put_ledger", unversioned_ledger),
    Mutant("a status is written whatever its version", Api, "put_record", unversioned_record),
    Mutant("bindings and deletes do not name the UID", Api, "_is_same", constant(True)),
    Mutant("a new leader keeps the epoch", Ledger, "taken_over", same_epoch),
    Mutant("the epoch is not looked at", leader._Store, "take", epoch_unread),
    Mutant("pods are bound under an epoch not read again", leader, "_confirm", unconfirmed),
    Mutant("a new leader asks for no lists", View, "relist", constant(None)),
    Mutant("deletes come before the abort", gang, "step", deletes_first),
    Mutant("an abort is not written", gang, "step", forgets_abort),
    Mutant("an abort ends while pods are going", gang, "_abort", leaves_dying),
    Mutant("pods are deleted again and again", gang, "_abort", deletes_again),
    Mutant(
        "an abort ends before it is recorded",
        gang,
        "_abort",
        with_seen(recorded_end=lambda entry, seen: entry.attempt),
    ),
    Mutant(
        "a commit ends before it is recorded",
        gang,
        "_commit",
        with_seen(recorded_attempt=lambda entry, seen: entry.attempt),
    ),
    Mutant("a commit ends when some pods are bound", gang, "_commit", settles_half),
    Mutant("pods are bound before all are made", gang, "_commit", binds_at_once),
    Mutant("the Placement is skipped", gang, "_commit", with_seen(placed=lambda entry, seen: True)),
    Mutant("a pod that asks for more is bound", gang, "_excess", constant("")),
    Mutant("commits reserve nothing", assume, "unbound_pods", owes_nothing(EntryState.COMMITTING)),
    Mutant("aborts reserve nothing", assume, "unbound_pods", owes_nothing(EntryState.ABORTING)),
    Mutant("a rank that ended gives its node back", assume, "unbound_pods", ended_ranks_give_back),
    Mutant("debts are not counted", assume, "subtract_assumed", debts_forgotten),
    Mutant("nodes look empty", assume, "subtract_assumed", nodes_look_empty),
    Mutant("old pods are not waited for", pending, "needs_attempt", does_not_wait_for_deletes),
    Mutant("an attempt begins beside a live one", pending, "needs_attempt", retries_at_once),
    Mutant("a job that ended starts again", pending, "needs_attempt", takes_final),
    Mutant("a suspended job starts", pending, "needs_attempt", suspended_starts),
    Mutant("an attempt's number is used again", pending, "next_attempt", number_reused),
    Mutant("live attempts are swept", commit_plan.CommitPlan, "sweep", sweeps_living),
    Mutant("nothing is swept", commit_plan.CommitPlan, "sweep", constant(None)),
    Mutant("a failure is counted twice", record, "fold", counts_twice),
    Mutant("a suspended commit goes on", cancellation, "cancels_commit", ignores_suspend),
    Mutant("the commit of a deleted job goes on", cancellation, "cancels_commit", ignores_deletion),
    Mutant("the commit of a changed job goes on", cancellation, "cancels_commit", ignores_changes),
    Mutant("a cut is taken for dead nodes", breaker, "assess", constant(CLOSED), beside="cuts"),
    Mutant("hanging ranks are not found", hang, "assess", constant(None), beside="hangs"),
    Mutant("an announced save is a hang", hang, "PHASE_LIMITS_S", training_limits, beside="hangs"),
    Mutant(
        "pre-runs are not judged", pre_run, "assess", lambda _: lambda _, it: it, beside="pre_runs"
    ),
    Mutant(
        "a pre-run spends budget",
        record,
        "_profiled",
        spends_budget,
        beside="pre_runs",
    ),
    Mutant("pre-runs follow for ever", record, "PRE_RUNS_MAX", lambda _: 99, beside="pre_runs"),
    Mutant("late commits count", record, "reported", revoked_commits_count, beside="checkpoints"),
    Mutant("double booking is not found", double_booking, "find", constant(()), beside="orphans"),
    Mutant("groups mix", resume_points, "raised", groups_share_points, beside="checkpoints"),
    Mutant("running attempts are not judged", scheduling, "_assess", constant(None)),
    Mutant("the front of the queue is all of it", QueueWindow, "admits", front_alone, short=True),
    Mutant("a cycle begins at the front", QueueWindow, "__init__", position_forgotten, short=True),
)


def _hunted(index: int) -> Caught | None:
    return hunt(MUTANTS[index], range(SEEDS_MAX))


def main() -> int:
    """Hunt all, in the core and in the shell; 1 if any survives."""
    shell_survivors = shell_mutants.survivors()
    needed: dict[str, int] = {}
    survivors = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        hunted = pool.map(_hunted, range(len(MUTANTS)))
        for mutant, caught in zip(MUTANTS, hunted, strict=True):
            if caught is None:
                survivors.append(mutant.name)
            else:
                needed[mutant.name] = caught.seeds
            reported = f"survived {SEEDS_MAX} seeds" if caught is None else caught.message
            print(f"{mutant.name}: {reported}", file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "mutants": len(MUTANTS),
                "caught": len(needed),
                "shell_mutants": len(SHELL_MUTANTS),
                "shell_caught": len(SHELL_MUTANTS) - len(shell_survivors),
                "survivors": survivors + shell_survivors,
                "seeds_needed": needed,
            }
        )
    )
    return 1 if survivors or shell_survivors else 0


if __name__ == "__main__":
    sys.exit(main())
