"""Small clusters with scripted leaders: cases that are too rare for random seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fixtures.attempts import DAILY
from railwright_scheduler.attempt.ledger import EntryRole
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.invariants import ViolationError
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.executor import Executor
from railwright_scheduler.simulator.leader import Batch, Leading, Rest, lead
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.objects import JobObject, NodeObject, ReplyStatus, Request
from railwright_scheduler.simulator.view import View
from simulation.mutants import MUTANTS


@dataclass(slots=True)
class Stage:
    """A cluster of one node and one job."""

    api: Api
    machines: Machines
    leaders: int = 0

    def leader(self) -> SteppedLeader:
        self.leaders += 1
        view = View(self.api, self.machines)
        executor = Executor(self.api, view.pods, view.jobs)
        leading = lead(f"leader{self.leaders}", self.api, view, executor, clock=lambda: 0)
        return SteppedLeader(view, leading, next(leading))

    def job(self, uid: str) -> None:
        self.api.jobs.put(uid, JobObject(uid, "a", (EntryRole("worker", 1, {"gpu": 8}),), DAILY, 0))

    def change(self, uid: str, **changes: Any) -> None:
        self.api.jobs.put(uid, replace(self.api.jobs.objects[uid], **changes))

    def run_pods(self) -> None:
        for pod in list(self.api.pods.objects.values()):
            self.machines.kubelet(pod, may_end=True)

    def delete_job(self, uid: str) -> None:
        self.api.jobs.remove(uid)
        for pod in list(self.api.pods.objects.values()):
            self.machines.collect(pod)
        for name in list(self.api.placements.objects):
            self.machines.collect_placement(name)


@dataclass(slots=True)
class SteppedLeader:
    """One leader, and what it is about to send."""

    view: View
    leading: Leading
    now: Batch | Rest | None

    @property
    def requests(self) -> tuple[Request, ...]:
        return self.now.requests if isinstance(self.now, Batch) else ()

    def until(self, name: str) -> Request:
        """Send, up to date, until a request of this name is next."""
        for _ in range(100):
            for request in self.requests:
                if request.name.startswith(name):
                    return request
            self.send()
        raise AssertionError(f"never about to {name}; next is {self.now}")

    def rest(self) -> None:
        """Send, up to date, until nothing more is to be sent."""
        for _ in range(100):
            sent = False
            while isinstance(self.now, Batch):
                sent = True
                self.send()
            self.send()
            if not sent and not isinstance(self.now, Batch):
                return
        raise AssertionError(f"no rest; next is {self.now}")

    def send(self, *, events: int = 1000) -> list[ReplyStatus]:
        """Send what is next, all of it; then so many events of each kind arrive."""
        answers = []
        for request in self.requests:
            reply = request.land()
            request.on_reply(reply)
            answers.append(reply.status)
        for copy in self.view.kinds.values():
            copy.catch_up(events)
        self.advance()
        return answers

    def advance(self) -> None:
        """Make up what is next."""
        self.now = next(self.leading, None)


@pytest.fixture
def on() -> Stage:
    api = Api()
    api.nodes.put("n0", NodeObject("n0", {"gpu": 8}))
    made = Stage(api, Machines(api))
    made.job("a@1")
    return made


def held_up_binding(on: Stage) -> Callable[[], ReplyStatus]:
    """A binding of a job that was made again since under the same name, on another node."""
    binding = on.leader().until("bind a@1/1")
    on.delete_job("a@1")
    on.api.nodes.remove("n0")
    on.api.nodes.put("n1", NodeObject("n1", {"gpu": 8}))
    on.job("a@2")
    on.leader().until("bind a@2/1")
    return lambda: binding.land().status


def test_delayed_binding_does_not_reach_pod_of_same_named_job(on: Stage) -> None:
    """The binding has the UID of the old pod as precondition."""
    assert held_up_binding(on)() is ReplyStatus.CONFLICT
    assert [pod.node for pod in on.api.pods.objects.values()] == [""]


def test_without_the_uid_a_held_up_binding_does_reach_it(on: Stage) -> None:
    [mutant] = [mutant for mutant in MUTANTS if "UID" in mutant.name]
    land = held_up_binding(on)
    with mutant.planted(), pytest.raises(ViolationError, match="I14: a-1-0 is bound to n0, the"):
        land()


def test_pod_made_after_its_attempt_is_deleted_and_never_bound(on: Stage) -> None:
    """A delayed create lands after the end of its attempt."""
    late = on.leader().until("create a@1/1")
    on.change("a@1", suspend=True)
    new = on.leader()
    new.rest()
    assert not on.api.ledger.entries
    assert late.land().status is ReplyStatus.DONE
    new.rest()
    assert not on.api.pods.objects


def test_deposed_leader_binds_no_pod_made_since(on: Stage) -> None:
    """A leader that missed its end may create a pod, but sends no binding."""
    old = on.leader()
    old.until("create a@1/1")
    on.change("a@1", suspend=True)
    on.leader().rest()
    assert old.send() == [ReplyStatus.DONE]
    for _ in range(10):
        if old.now is not None:
            assert not any(request.name.startswith("bind") for request in old.requests)
            old.send()
    assert old.now is None


def test_enlarged_pod_is_not_bound_by_next_leader(on: Stage) -> None:
    """A webhook raised the requests of a pod before the change of leaders."""
    on.api.inflated["a@1"] = True
    on.leader().until("create a@1/1").land()
    on.leader().rest()
    assert on.api.jobs.objects["a@1"].record.last_termination is not None
    assert not on.api.pods.objects


def test_job_changed_while_committed_restarts_with_new_spec(on: Stage) -> None:
    leader = on.leader()
    leader.until("create a@1/1")
    on.change("a@1", roles=(EntryRole("worker", 1, {"gpu": 4}),))
    leader.rest()
    on.run_pods()
    assert [dict(pod.amounts) for pod in on.api.pods.objects.values()] == [{"gpu": 4}]


def test_older_news_of_a_pod_does_not_undo_its_binding(on: Stage) -> None:
    leader = on.leader()
    binding = leader.until("bind a@1/1")
    [pod] = on.api.pods.objects.values()
    on.api.pods.put(pod.uid, pod)
    binding.on_reply(binding.land())
    leader.advance()
    while on.api.ledger.entries:
        leader.send(events=0)
    leader.view.pods.catch_up(1)
    for _ in range(5):
        leader.send(events=0)
    assert not on.api.ledger.entries


def test_an_epoch_is_won_by_one_of_two(on: Stage) -> None:
    first, second = on.leader(), on.leader()
    assert first.send() == [ReplyStatus.DONE]
    assert second.send() == [ReplyStatus.CONFLICT]
    assert second.send() == [ReplyStatus.DONE]
    assert on.api.ledger.epoch == 2
    first.send()
    assert first.now is None


def test_a_job_runs_to_its_end_and_leaves_nothing_in_the_ledger(on: Stage) -> None:
    leader = on.leader()
    for _ in range(5):
        leader.rest()
        on.run_pods()
    assert on.api.jobs.objects["a@1"].record.phase is Phase.SUCCEEDED
    assert [pod.phase for pod in on.api.pods.objects.values()] == [PodState.SUCCEEDED]
    assert not on.api.ledger.entries
