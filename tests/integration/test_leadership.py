"""One leader at a time, by a real Lease; it stops before another one may hold the Lease."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from fixtures import proxy, shell
from fixtures.api_faults import Fault, Late, Reply
from railwright_kube import errors
from railwright_kube.leadership import Leadership, LeaseTimings
from railwright_operator.write.ledger import DeposedError, LedgerStore
from railwright_testbed import ControlPlane

ADDRESSES = {"one": "10.0.0.1:8470", "two": "10.0.0.2:8470"}
TIMINGS = LeaseTimings(duration_s=10.0, renew_deadline_s=7.0, retry_s=0.3)
SHORT = LeaseTimings(duration_s=5.0, renew_deadline_s=2.0, retry_s=0.3)
"""For a pause of this whole process: the proxies of other tests' operators are in it too."""


@dataclass
class Candidate:
    """The leadership of one process, and the times of its callbacks (monotonic seconds)."""

    kubeconfig: str
    namespace: str
    name: str
    clock: Callable[[], float] = time.monotonic
    timings: LeaseTimings = TIMINGS
    gained_s: list[float] = field(default_factory=list)
    lost_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leadership = Leadership(
            self.kubeconfig,
            namespace=self.namespace,
            name="operator",
            identity=self.name,
            address=ADDRESSES.get(self.name, ""),
            on_gained=lambda: self.gained_s.append(time.monotonic()),
            on_lost=lambda: self.lost_s.append(time.monotonic()),
            clock=self.clock,
            rng=Random(self.name),
            timings=self.timings,
        )

    def held(self) -> bool:
        return self.leadership.held()


async def stop(*candidates: Candidate) -> None:
    for candidate in candidates:
        await asyncio.to_thread(candidate.leadership.stop, deadline_s=20.0)


async def _last_held_s(candidate: Candidate) -> float:
    """Wait until it stops by its own clock; the last time at which it held the Lease."""
    last_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        if not candidate.held():
            return last_s
        last_s = asked_s
        await asyncio.sleep(0.02)


def lease(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator"


async def test_the_first_leads_and_gives_the_lease_back_when_it_stops(
    control_plane: ControlPlane, namespace: str
) -> None:
    source = shell.connect(control_plane)
    one, two = (Candidate(source, namespace, name) for name in ("one", "two"))
    try:
        one.leadership.start()
        await shell.until(one.held, "the first leads")
        two.leadership.start()
        started_s = time.monotonic()
        while time.monotonic() < started_s + TIMINGS.duration_s + 1.0:
            assert one.held()
            assert not two.held()
            await asyncio.sleep(0.05)
        assert one.leadership.leader_address() == ""
        assert two.leadership.leader_address() == ADDRESSES["one"]
        await stop(one)
        assert not one.held()
        stopped_s = time.monotonic()
        await shell.until(two.held, "the second leads")
        assert one.leadership.leader_address() == two.leadership.leader_address() == ""
        assert time.monotonic() - stopped_s < TIMINGS.duration_s
        assert one.lost_s == []
    finally:
        await stop(one, two)


async def test_a_leader_cut_off_stops_writing_before_another_may_lead(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with proxy.in_front_of(control_plane) as between:
        one = Candidate(shell.connect(control_plane, through=between.entrance), namespace, "one")
        two = Candidate(shell.connect(control_plane), namespace, "two")
        try:
            one.leadership.start()
            await shell.until(one.held, "the first leads")
            two.leadership.start()
            async with shell.api(shell.connect(control_plane), may_write=one.held) as api:
                place = f"/api/v1/namespaces/{namespace}/configmaps"
                await api.create(place, shell.config_map("as-leader"))
                between.stall()
                held_s = await _last_held_s(one)
                with pytest.raises(errors.NotLeader):
                    await api.create(place, shell.config_map("as-ghost"))
            await shell.until(lambda: one.lost_s and two.gained_s, "both are told")
            assert two.gained_s[0] > held_s
        finally:
            between.flow()
            await stop(one, two)


async def test_a_busy_event_loop_does_not_cost_the_lease(
    control_plane: ControlPlane, namespace: str
) -> None:
    one = Candidate(shell.connect(control_plane), namespace, "one")
    try:
        one.leadership.start()
        await shell.until(one.held, "it leads")
        end_s = time.monotonic() + TIMINGS.duration_s + 1.0
        while time.monotonic() < end_s:
            assert one.held()
        assert one.lost_s == []
    finally:
        await stop(one)


async def test_lease_taken_by_force_is_lost_and_not_retaken(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Another holder wrote the Lease; the leader stops and does not try again."""
    one = Candidate(shell.connect(control_plane), namespace, "one")
    async with shell.api(shell.connect(control_plane)) as api:
        try:
            one.leadership.start()
            await shell.until(one.held, "it leads")
            await api.patch(lease(namespace), {"spec": {"holderIdentity": "person"}})
            await shell.until(lambda: one.lost_s, "it is told")
            assert not one.held()
        finally:
            await stop(one)
        assert (await api.get(lease(namespace)))["spec"]["holderIdentity"] == "person"


async def test_lease_released_by_another_is_still_lost(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A leader whose Lease was taken and released does not go on."""
    one = Candidate(shell.connect(control_plane), namespace, "one")
    async with shell.api(shell.connect(control_plane)) as api:
        try:
            one.leadership.start()
            await shell.until(one.held, "it leads")
            await api.patch(lease(namespace), {"spec": {"holderIdentity": ""}})
            await shell.until(lambda: one.lost_s, "it is told")
            assert len(one.gained_s) == 1
        finally:
            await stop(one)


async def test_an_outage_shorter_than_the_renew_deadline_costs_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with proxy.in_front_of(control_plane) as between:
        one = Candidate(shell.connect(control_plane, through=between.entrance), namespace, "one")
        try:
            one.leadership.start()
            await shell.until(one.held, "it leads")
            between.fail("get leases", Reply(503), times=2)
            between.fail("update leases", Fault.REPLY_LOST)
            seen = between.count("update leases")
            await shell.until(lambda: between.count("update leases") >= seen + 3, "it renews again")
            assert one.held()
            assert one.lost_s == []
        finally:
            await stop(one)


def test_terms_that_would_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline_s 14"):
        LeaseTimings(duration_s=15.0, renew_deadline_s=14.0, retry_s=2.0)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_lease_counts_from_local_observation(
    control_plane: ControlPlane, namespace: str, hours: int
) -> None:
    """The times in the Lease are those of another clock and do not count."""
    renewed = datetime.now(UTC) + timedelta(hours=hours)
    times = dict.fromkeys(("acquireTime", "renewTime"), renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    spec = {"holderIdentity": "other", "leaseDurationSeconds": int(TIMINGS.duration_s) // 2}
    one = Candidate(shell.connect(control_plane), namespace, "one")
    async with shell.api(shell.connect(control_plane)) as api:
        body = {"metadata": {"name": "operator"}, "spec": spec | times}
        await api.create(lease(namespace).rpartition("/")[0], body)
    started_s = time.monotonic()
    try:
        one.leadership.start()
        await shell.until(one.held, "it leads")
        assert one.gained_s[0] - started_s >= TIMINGS.duration_s // 2
    finally:
        await stop(one)


async def test_expired_lease_is_taken_at_once(control_plane: ControlPlane, namespace: str) -> None:
    """A candidate wakes at the expiry, whatever its retry interval is."""
    rarely = LeaseTimings(duration_s=60.0, renew_deadline_s=50.0, retry_s=40.0)
    one = Candidate(shell.connect(control_plane), namespace, "one", timings=rarely)
    async with shell.api(shell.connect(control_plane)) as api:
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 3}
        body = {"metadata": {"name": "operator"}, "spec": spec}
        await api.create(lease(namespace).rpartition("/")[0], body)
    started_s = time.monotonic()
    try:
        one.leadership.start()
        await shell.until(one.held, "it leads")
        assert 3 <= one.gained_s[0] - started_s < rarely.retry_s / 2
    finally:
        await stop(one)


async def test_fast_clock_cannot_make_two_ledger_writers(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Both processes hold the Lease for a time; the epoch refuses the writes of one."""
    async with proxy.in_front_of(control_plane) as between:
        one = Candidate(shell.connect(control_plane, through=between.entrance), namespace, "one")
        two = Candidate(
            shell.connect(control_plane), namespace, "two", clock=lambda: 2 * time.monotonic()
        )
        try:
            async with shell.api(shell.connect(control_plane)) as api:
                ledgers = LedgerStore(api, holder="one"), LedgerStore(api, holder="two")
                one.leadership.start()
                await shell.until(one.held, "the first leads")
                await ledgers[0].take_over()
                two.leadership.start()
                between.fail("* leases", Fault.SILENCE, times=None)
                await shell.until(two.held, "the second leads, too early")
                await ledgers[1].take_over()
                with pytest.raises(DeposedError, match="two wrote the ledger"):
                    await ledgers[0].write(ledgers[0].ledger)
        finally:
            between.lift_all()
            await stop(one, two)


async def test_process_paused_beyond_its_lease_sends_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    one = Candidate(shell.connect(control_plane), namespace, "one", timings=SHORT)
    place = f"/api/v1/namespaces/{namespace}/configmaps"
    async with shell.api(shell.connect(control_plane), may_write=one.held) as api:
        try:
            one.leadership.start()
            await shell.until(one.held, "it leads")
            await api.create(place, shell.config_map("in-time"))
            # Called through PyDLL it keeps the interpreter's lock, so that no thread runs.
            ctypes.PyDLL(None).sleep(int(SHORT.duration_s))
            with pytest.raises(errors.NotLeader):
                await api.create(place, shell.config_map("too-late"))
            await shell.until(
                lambda: one.lost_s, "it is told, and does not renew as if nothing was"
            )
            assert not one.held()
            assert len(one.gained_s) == 1
        finally:
            await stop(one)


async def test_slow_api_server_costs_no_leadership(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Requests of 4 s, with the timings that the operator has: it may write all the time."""
    async with proxy.in_front_of(control_plane) as between:
        source = shell.connect(control_plane, through=between.entrance)
        one, two = (
            Candidate(source, namespace, name, timings=LeaseTimings()) for name in ("one", "two")
        )
        try:
            one.leadership.start()
            await shell.until(one.held, "the first leads")
            two.leadership.start()
            between.fail("get *", Late(4.0), times=None)
            between.fail("update *", Late(4.0), times=None)
            end_s = time.monotonic() + 2 * LeaseTimings().duration_s
            while time.monotonic() < end_s:
                assert one.held()
                assert not two.held()
                await asyncio.sleep(0.05)
        finally:
            between.lift_all()
            await stop(one, two)
