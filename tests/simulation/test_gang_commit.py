"""Gangs commit and recover while leaders, machines and people do their worst, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from railwright_scheduler.attempt.assessment import PodState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.invariants import ViolationError
from railwright_scheduler.simulator.api import Answer, Api, Guards, JobObject, NodeObject
from railwright_scheduler.simulator.chance import Chance
from railwright_scheduler.simulator.leader import Intent, Leading, lead
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.run import RunError, run
from railwright_scheduler.simulator.view import View

KEPT = Path(__file__).with_name("seeds.txt")
SEEDS = 300
STEPS = 500
MUTANT_SEEDS = 500


def kept_seeds() -> list[int]:
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_seed_that_broke_something_once_holds(seed: int) -> None:
    run(seed, steps=STEPS)


def test_hundreds_of_seeds_hold_every_invariant_and_come_to_rest() -> None:
    outcomes = [run(seed, steps=STEPS) for seed in range(SEEDS)]
    assert sum(outcome.steps for outcome in outcomes) == SEEDS * STEPS >= 20_000
    # A run in which nothing can happen proves nothing.
    assert sum(outcome.writes for outcome in outcomes) > 20 * SEEDS
    assert sum(outcome.succeeded for outcome in outcomes) > SEEDS // 2
    assert set().union(*(outcome.counts for outcome in outcomes)) >= {
        *("take over", "late", "pause", "crash", "node down", "node removed", "pod deleted"),
        *("rank crash", "suspend", "job deleted", "job replaced", "refuse"),
    }


def test_chance_is_splitmix64() -> None:
    # The numbers that Rosetta Code publishes for this seed.
    chance = Chance(1234567)
    assert [chance.number() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_one_seed_is_one_run() -> None:
    assert run(7, steps=STEPS) == run(7, steps=STEPS)


@pytest.mark.parametrize(
    ("guards", "number"),
    [
        (Guards(uid=False), "I15"),
        (Guards(version=False), "I14"),
        (Guards(ledger_first=False), "I15"),
    ],
)
def test_a_run_without_one_of_the_guards_is_noticed(guards: Guards, number: str) -> None:
    assert f": {number}: " in first_break(guards)


def first_break(guards: Guards) -> str:
    for seed in (*kept_seeds(), *range(MUTANT_SEEDS)):
        try:
            run(seed, steps=STEPS, guards=guards)
        except RunError as broken:
            return str(broken)
    return f"{MUTANT_SEEDS} seeds noticed nothing"


@dataclass(slots=True)
class Stage:
    """A small cluster on which leaders act as told: what is too rare for chance."""

    api: Api
    machines: Machines
    leaders: int = 0

    def leader(self) -> Led:
        self.leaders += 1
        view = View(self.api, self.machines)
        name = f"leader{self.leaders}"
        leading = lead(name, self.api, view, clock=lambda: 0, guards=Guards())
        return Led(view, leading, next(leading))

    def job(self, uid: str) -> None:
        self.api.jobs.put(uid, JobObject(uid, "a", 1, {"gpu": 8}, 0, 0))


@dataclass(slots=True)
class Led:
    """One leader, and the request that it is about to send."""

    view: View
    leading: Leading
    ready: Intent

    def until(self, name: str) -> None:
        """Send, up to date, until a request of this name is next."""
        for _ in range(100):
            if self.ready.name.startswith(name):
                return
            self.send()
        raise AssertionError(f"never about to {name}; next is {self.ready.name}")

    def send(self) -> Answer:
        """Send what is ready."""
        answer = Answer.DONE if self.ready.send is None else self.ready.send()
        for table in range(4):
            self.view.catch_up(table, 1000)
        self.ready = self.leading.send(answer)
        return answer


def stage(*, uid_guard: bool = True) -> Stage:
    api = Api(Guards(uid=uid_guard))
    api.nodes.put("n0", NodeObject("n0", {"gpu": 8}))
    made = Stage(api, Machines(api))
    made.job("a@1")
    return made


@pytest.mark.parametrize("uid_guard", [True, False])
def test_a_held_up_binding_does_not_reach_the_pod_of_a_job_of_the_same_name(
    uid_guard: bool,
) -> None:
    on = stage(uid_guard=uid_guard)
    old = on.leader()
    old.until("BindPod a@1/1")
    on.api.jobs.remove("a@1")
    on.machines.collect(on.api.pods.objects["a-1-0"])
    on.api.nodes.remove("n0")
    on.api.nodes.put("n1", NodeObject("n1", {"gpu": 8}))
    on.job("a@2")
    on.leader().until("BindPod a@2/1")
    assert old.ready.send is not None
    if uid_guard:
        assert old.ready.send() is Answer.CONFLICT
        assert on.api.pods.objects["a-1-0"].node == ""
    else:
        with pytest.raises(ViolationError, match="I14: a-1-0 is bound to n0, the ledger says n1"):
            old.ready.send()


def test_a_pod_made_after_its_attempt_was_over_is_never_bound_and_is_deleted() -> None:
    on = stage()
    old = on.leader()
    old.until("CreatePod a@1/1")
    job = on.api.jobs.objects["a@1"]
    suspended = JobObject("a@1", "a", 1, {"gpu": 8}, 0, 0, True, job.record, job.version + 1)
    on.api.jobs.put("a@1", suspended)
    new = on.leader()
    new.until("rest")
    new.send()
    new.until("rest")
    assert not on.api.ledger.entries
    assert old.ready.send is not None
    assert old.ready.send() is Answer.DONE
    new.send()
    new.send()
    new.until("rest")
    assert not on.api.pods.objects


def test_an_epoch_is_won_by_one_of_two() -> None:
    on = stage()
    first, second = on.leader(), on.leader()
    assert first.send() is Answer.DONE
    assert second.send() is Answer.CONFLICT
    assert second.send() is Answer.DONE
    assert on.api.ledger.epoch == 2
    with pytest.raises(StopIteration):
        first.send()


def test_a_job_runs_to_its_end_and_leaves_nothing_in_the_ledger() -> None:
    on = stage()
    leader = on.leader()
    for _ in range(20):
        leader.until("rest")
        leader.send()
        for pod in list(on.api.pods.objects.values()):
            on.machines.kubelet(pod, may_end=True)
    assert on.api.jobs.objects["a@1"].record.phase is Phase.SUCCEEDED
    assert on.api.pods.objects["a-1-0"].phase is PodState.SUCCEEDED
    assert not on.api.ledger.entries
