"""Pods of jobs that do not exist: the simulator observes them as the operator does."""

from __future__ import annotations

from typing import Any

import pytest

from railwright_scheduler import double_booking
from railwright_scheduler import plan as scheduling
from railwright_scheduler.cluster_state import ClusterState
from railwright_scheduler.double_booking import DoubleBooking
from railwright_scheduler.invariants import PodFact
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.disturbances import GPU
from railwright_scheduler.simulator.executor import Executor
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.objects import FOREIGN, ORPHANED, NodeObject
from railwright_scheduler.simulator.run import run
from railwright_scheduler.simulator.view import View

SEEDS = 60
STEPS = 500


def test_double_booked_nodes_get_nothing_and_all_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every invariant holds in hundreds of plans with a double booking."""
    booked: list[DoubleBooking] = []
    plan = scheduling.plan

    def planned(*given: Any) -> Any:
        made = plan(*given)
        booked.extend(made.double_bookings)
        return made

    monkeypatch.setattr(scheduling, "plan", planned)
    outcomes = [run(seed, steps=STEPS, orphans=True, cuts=seed % 4 == 1) for seed in range(SEEDS)]
    assert len(booked) > 4 * SEEDS
    assert {GPU} == {each.resource for each in booked}
    assert sum(outcome.succeeded for outcome in outcomes) > SEEDS // 3


def test_simulated_nodes_have_the_usage_of_all_pods() -> None:
    """By pods of jobs, of no job, and by those bound before the node shrank."""
    api = Api()
    view = View(api, Machines(api))
    executor = Executor(api, view.pods, view.jobs)

    def bind(name: str, job_uid: str, attempt: int, devices: int) -> None:
        api.pods.put(name, PodFact(name, name, job_uid, attempt, 0, {GPU: devices}, node="n0"))

    def state() -> ClusterState:
        for copy in view.kinds.values():
            copy.catch_up(100)
        return view.world(api.ledger, executor, now_s=0)

    api.nodes.put("n0", NodeObject("n0", {GPU: 8}, capacity={GPU: 8}))
    for name, job_uid, devices in (("p0", "a", 4), ("p1", ORPHANED, 4), ("p2", FOREIGN, 2)):
        bind(name, job_uid, 1, devices)
    (node,), attempts = state().nodes, state().attempts
    assert (node.used, node.foreign, node.promised) == ({GPU: 10}, {GPU: 2}, {})
    assert attempts.keys() == {("a", 1), (ORPHANED, 1)}
    api.nodes.put("n0", NodeObject("n0", {GPU: 4}, capacity={GPU: 8}))
    (node,) = state().nodes
    assert node.promised == {GPU: 8}
    assert not double_booking.find([node], attempts)
    bind("p3", ORPHANED, 2, 1)
    (found,) = double_booking.find(state().nodes, state().attempts)
    assert (found.held, found.available) == (9, 8)
    assert found.attempts == (("a", 1), (ORPHANED, 1), (ORPHANED, 2))
