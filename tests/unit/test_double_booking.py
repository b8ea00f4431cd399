"""Two attempts on one device: found from the nodes, and nothing more is placed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import GPU, node, reporting
from fixtures.attempts import RUNNING, entry, seen, world_of
from fixtures.jobs import with_role
from fixtures.reporting import Desk
from railwright_operator.invariants import DoubleBookings
from railwright_operator.machines import Machines
from railwright_operator.report import status
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_scheduler import live_invariants
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import AttemptKey, EntryRole, Ledger
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.live_invariants import DoubleBooking
from railwright_scheduler.model.shortages import Exclusion, ExclusionCause, NotEnoughNodes
from railwright_scheduler.model.snapshot import Node
from railwright_topology.fabric import Fabric
from railwright_watch.nodes import NodeRecord

A, B = ("a", 1), ("b", 1)
NONE_IN_FLIGHT = Ledger(1, "incarnation", "replica")
Held = Mapping[AttemptKey, int]


def holding(name: str, held: Held, *, foreign: int = 0) -> Node:
    """A node of 8 GPUs with so many held by each attempt."""
    used = {GPU: sum(held.values()) + foreign}
    return node(name, used=used, foreign={GPU: foreign})


def holders(name: str, held: Held) -> dict[AttemptKey, ObservedAttempt]:
    """These attempts, each with a pod on the node."""
    return {
        key: ObservedAttempt((Pod(f"{key}", f"{key}", 0, name, False, False, {GPU: amount}),))
        for key, amount in held.items()
    }


def find(name: str, held: Held, *, foreign: int = 0) -> tuple[DoubleBooking, ...]:
    nodes = [holding(name, held, foreign=foreign)]
    return live_invariants.double_bookings(nodes, holders(name, held), NONE_IN_FLIGHT)


def bookings(machines: Machines, pods: PodIndex) -> tuple[DoubleBooking, ...]:
    nodes = machines.build_nodes(Fabric(), {})
    return live_invariants.double_bookings(nodes, pods.observed(), NONE_IN_FLIGHT)


@given(st.dictionaries(st.sampled_from([A, B, ("c", 2)]), st.integers(0, 8)), st.integers(0, 16))
def test_double_booking_matches_sum_of_attempts(
    held: dict[tuple[str, int], int], foreign: int
) -> None:
    found = find("n0", held, foreign=foreign)
    keys = [key for key, amount in held.items() if amount]
    assert bool(found) == (sum(held.values()) > 8 and len(keys) > 1)
    assert [booking.attempts for booking in found] in ([], [tuple(sorted(keys))])


def test_foreign_pod_is_no_double_booking() -> None:
    assert not find("n0", {A: 4, B: 4}, foreign=8)


@pytest.mark.parametrize("cause", [None, Cause(CauseCode.COMMIT_REFUSED, "n0 lost devices")])
def test_attempt_that_is_withdrawn_is_no_double_booking(cause: Cause | None) -> None:
    """Its pod was on its way when the node lost devices. Two others beside it are found."""
    its = entry(2, cause=cause)
    in_flight = NONE_IN_FLIGHT.with_entries((its,))
    for held, found in (({A: 8, B: 0}, 0), ({A: 8, B: 1}, 1)):
        nodes, pods = [holding("n0", held | {its.key: 4})], holders("n0", held | {its.key: 4})
        assert len(live_invariants.double_bookings(nodes, pods, in_flight)) == found


def test_double_booked_node_takes_no_new_pod() -> None:
    """Not even of a job that asks for none of what is double-booked."""
    held = {A: 8, B: 8}
    double, attempts = holding("n0", held), holders("n0", held)
    job = seen(name="c")
    small = replace(job, job=with_role(job.job, replicas=1, per_pod={"pods": 1}))
    taken = scheduling.plan(world_of(small, nodes=(double,), attempts=attempts))
    assert not taken.ledger.entries
    reason = taken.waits["c"]
    assert isinstance(reason, NotEnoughNodes)
    assert reason.excluded == (Exclusion(ExclusionCause.DOUBLE_BOOKED, 1),)
    nodes = (double, node("n1"))
    taken = scheduling.plan(world_of(small, nodes=nodes, attempts=attempts))
    assert [entry.nodes for entry in taken.ledger.entries] == [("n1",)]
    assert [booking.node for booking in taken.double_bookings] == ["n0"]


def test_double_booked_node_stops_a_commit() -> None:
    """Although the gang asks for none of what is double-booked."""
    small = replace(entry(), roles=(EntryRole("worker", 2, {"pods": 1}),))
    held = {("b", 1): 8, ("c", 1): 8}
    attempts = {small.key: ObservedAttempt(placed=True), **holders("n0", held)}
    nodes = (holding("n0", held), node("n1"))
    world = world_of(seen(), nodes=nodes, entries=(small,), attempts=attempts)
    (stopped,) = scheduling.plan(world).ledger.entries
    assert stopped.cause is not None
    assert stopped.cause.message.startswith("node n0 is double-booked")


def test_double_booking_leaves_running_attempts_alone() -> None:
    held = {A: 8, B: 8}
    nodes = (holding("n0", held), holding("n1", {A: 8}))
    taken = scheduling.plan(world_of(seen(RUNNING), nodes=nodes, attempts=holders("n0", held)))
    assert taken.double_bookings
    assert not taken.ledger.entries
    assert taken.records["a"] == RUNNING


def pod(uid: str, job_uid: str | None, gpus: int) -> PodRecord:
    return PodRecord(
        uid=uid,
        namespace="team",
        name=uid,
        rv=1,
        node="n0",
        phase="Running",
        deleting=False,
        requests={GPU: gpus},
        job_uid=job_uid,
        attempt=1,
    )


def machine(gpus: int) -> NodeRecord:
    """A node of 8 GPUs, so many of which work."""
    return NodeRecord("u0", "n0", 1, True, False, (), {}, {GPU: gpus}, capacity={GPU: 8})


def test_double_booking_is_found_and_ends_with_the_pod() -> None:
    index = PodIndex(lambda uid: None)
    machines = Machines({"u0": machine(8)}, index)
    first, second = pod("p0", "a", 8), pod("p1", "b", 8)
    index.change(None, first)
    index.change(None, pod("p2", None, 8))
    assert not bookings(machines, index)
    index.change(None, second)
    (found,) = bookings(machines, index)
    assert (found.held, found.available, found.attempts) == (16, 8, (A, B))
    index.change(second, replace(second, phase="Succeeded"))
    assert not bookings(machines, index)


def test_node_that_shrinks_is_no_double_booking() -> None:
    """Until its pods are gone, it had what it gave them; more than that is a double booking."""
    index = PodIndex(lambda uid: None)
    records = {"u0": machine(8)}
    machines = Machines(records, index)
    index.change(None, pod("p0", "a", 4))
    index.change(None, pod("p1", "b", 4))
    machines.build_nodes(Fabric(), {})
    records["u0"] = machine(6)
    assert not bookings(machines, index)
    index.change(None, pod("p2", "c", 1))
    (found,) = bookings(machines, index)
    assert (found.held, found.available) == (9, 8)


def test_failed_device_is_no_double_booking_to_a_new_leader() -> None:
    index = PodIndex(lambda uid: None)
    machines = Machines({"u0": machine(6)}, index)
    index.change(None, pod("p0", "a", 4))
    index.change(None, pod("p1", "b", 4))
    assert not bookings(machines, index)
    index.change(None, pod("p2", "c", 1))
    (found,) = bookings(machines, index)
    assert (found.held, found.available) == (9, 8)


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods"])
def test_shrunk_node_is_no_double_booking_to_a_new_leader(resource: str) -> None:
    """What the node had of it before is in no field. What is given beyond that is found."""
    index = PodIndex(lambda uid: None)
    shrunk = replace(machine(8), allocatable={resource: 6}, capacity={resource: 7})
    machines = Machines({"u0": shrunk}, index)
    for uid, job_uid in (("p0", "a"), ("p1", "b"), ("p2", None)):
        index.change(None, replace(pod(uid, job_uid, 0), requests={resource: 4}))
    assert not bookings(machines, index)
    assert not bookings(machines, index)
    index.change(None, replace(pod("p3", "c", 0), requests={resource: 1}))
    (found,) = bookings(machines, index)
    assert (found.held, found.available) == (9, 8)


def test_condition_names_double_booked_node_and_clears() -> None:
    bookings = DoubleBookings()
    bookings.update(find("n0", {A: 8, B: 8}))
    plain = status.StatusInput(
        record=RUNNING,
        before={},
        generation=1,
        now="2026-01-02T03:04:05Z",
        failures_used="",
    )
    for uid in ("a", "b"):
        after = status.render(replace(plain, double_booking=bookings.message(uid)))
        assert _healthy(after) == ("False", "NodeDoubleBooked")
        assert "16 nvidia.com/gpu on n0, which has 8" in bookings.message(uid)
    bookings.update(())
    after = status.render(replace(plain, before=after, double_booking=bookings.message("a")))
    assert _healthy(after) == ("True", "NothingFound")


async def test_double_booking_reaches_status_metric_and_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    running = {"phase": "Running", "attempt": 1, "nodes": ["n0", "n1"]}
    first, second, third = (
        desk.add(reporting.raw_job(name, status=running)) for name in ("a", "b", "c")
    )
    uids = [desk.store.objects[path]["metadata"]["uid"] for path in (first, second)]
    bookings = find("n0", dict.fromkeys(((uid, 1) for uid in uids), 8))
    await desk.run_cycle(double_bookings=bookings)
    reasons = [_healthy(desk.store.objects[path]["status"])[1] for path in (first, second, third)]
    assert reasons == ["NodeDoubleBooked", "NodeDoubleBooked", "NothingFound"]
    assert desk.registry.get_sample_value("railwright_double_booked_nodes") == 1
    await desk.run_cycle(double_bookings=bookings)
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
        "invariant violated"
    ]
    await desk.run_cycle()
    for path in (first, second):
        assert _healthy(desk.store.objects[path]["status"]) == ("True", "NothingFound")
    assert desk.registry.get_sample_value("railwright_double_booked_nodes") == 0


def _healthy(after: status.Status) -> tuple[str, str]:
    found = {each["type"]: each for each in after["conditions"]}["Healthy"]
    return found["status"], found["reason"]
