"""The state of a cycle: suspected nodes, expected launchers, and no effect of foreign pods."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from http import HTTPStatus

import pytest

from fixtures import observing
from fixtures.observing import JOB, LEDGER, START_TIMEOUT_S, Watched, ask_all
from railwright import pacing, protocol
from railwright_api import names
from railwright_conversion.machines import PRODUCT
from railwright_operator.heartbeats import interval, reception
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.machines import Machines
from railwright_operator.state_builder import FORGET_S
from railwright_operator.suspected_nodes import UNREPORTED_S
from railwright_operator.watch import node_leases, records
from railwright_operator.write.executor import UNDER_WAY_MAX
from railwright_process.messages import RefusedError
from railwright_scheduler.attempt.assessment import Assessment, Ended, Ongoing
from railwright_scheduler.attempt.breaker import SETTLE_S
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import CreatePod
from railwright_scheduler.attempt.ledger import Entry, EntryRole, EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.cluster import NODE_AMOUNT_MAX
from railwright_scheduler.cluster_state import ClusterState
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.model import scale_up_domains
from railwright_scheduler.model.evidence import SILENT_S
from railwright_scheduler.model.profile import Profile
from railwright_scheduler.model.reasons import PodNamesTaken, QueueNotFound
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_topology.fabric import Fabric
from railwright_topology.interconnect import Interconnect
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.relative_speed import EVEN, RelativeSpeed
from railwright_topology.source_reports import SCALE_UP

DETECT_S_MAX = 30.0


def entry(cause: Cause | None = None) -> Entry:
    state = EntryState.COMMITTING if cause is None else EntryState.ABORTING
    return Entry(
        JOB, "team", "job", 1, state, ("n0", "n1"), (EntryRole("worker", 2, {"pods": 1}),), cause
    )


def test_node_speed_follows_fabric_and_is_rebuilt_on_change() -> None:
    seen = Watched()
    machines, network = Machines(seen.nodes, seen.pods), Interconnect()
    slow = Fabric(relative_speeds={"n1": RelativeSpeed(products=0.61)})
    before = machines.build_nodes(network, {})
    health = observing.health_record("n1", slow)
    after = machines.build_nodes(network, {"n1": health})
    assert [node.relative_speed for node in after] == [EVEN, RelativeSpeed(products=0.61)]
    assert after[0] is before[0]
    assert machines.build_nodes(network, {"n1": health})[1] is after[1]
    written_again = replace(health, rv=2)
    assert machines.build_nodes(network, {"n1": written_again})[1] is after[1]
    assert machines.build_nodes(network, {})[1].relative_speed == EVEN


def test_health_of_an_earlier_node_of_the_name_does_not_count() -> None:
    seen = Watched()
    health = observing.health_record("n1", Fabric(relative_speeds={"n1": RelativeSpeed(0.61)}))
    found = Machines(seen.nodes, seen.pods).build_nodes(
        Interconnect(), {"n1": replace(health, node_uid="replaced")}
    )
    assert found[1].relative_speed == EVEN


def test_a_pod_that_claims_a_rank_beyond_the_gang_is_none_of_it() -> None:
    seen = Watched(phase=Phase.STARTING)
    seen.pod(0, claims=99)
    attempt = seen.world(LEDGER.with_entries([entry()])).attempts[JOB, 1]
    assert [pod.node_rank for pod in attempt.pods] == [0, 1]
    assert [rank.node_rank for rank in seen.world().jobs[0].ranks] == [0, 1]


def test_job_waits_while_its_pod_names_are_taken() -> None:
    """A job that was deleted and applied again finds the pods of the one before it."""
    seen = Watched(phase=Phase.QUEUED)
    (pod,) = (each for each in seen.pods.of((JOB, 1)) if each.node_rank == 1)
    for each in seen.pods.of((JOB, 1)):
        seen.pods.change(each, None)
    seen.record(Phase.QUEUED, attempt=0)
    terminating = replace(pod, job_uid="old", deleting=True)
    seen.pods.change(None, terminating)
    plan = seen.run_cycle()
    assert plan.waits[JOB] == PodNamesTaken(need=2, taken=1, first="job-worker-1-1")
    assert not plan.ledger.entries
    seen.pods.change(terminating, None)
    assert seen.run_cycle().waits[JOB] == QueueNotFound("default", ())


def test_names_of_the_next_attempt_hold_no_running_job() -> None:
    seen = Watched(phase=Phase.RUNNING)
    (pod,) = (each for each in seen.pods.of((JOB, 1)) if each.node_rank == 1)
    later = replace(pod, uid="later", name="job-worker-1-2", job_uid="old", attempt=2)
    seen.pods.change(None, later)
    assert seen.world().jobs[0].held is None
    seen.record(Phase.QUEUED, attempt=1)
    assert seen.world().jobs[0].held == PodNamesTaken(2, 1, "job-worker-1-2")


def test_job_that_cannot_be_observed_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, isolation = Watched(), Isolation()
    raw = observing.raw_job(9, 2, {})
    raw["metadata"] |= {"uid": "odd", "name": "odd"}
    seen.jobs.absorb(raw)
    attempt = seen.sessions.attempt

    def fail(job_uid: str, number: int) -> SessionView | None:
        if job_uid == "odd":
            raise ZeroDivisionError
        return attempt(job_uid, number)

    monkeypatch.setattr(seen.sessions, "attempt", fail)
    observed: list[ClusterState | None] = []
    with contextlib.suppress(ZeroDivisionError):
        observed = [*seen.state_builder.build(LEDGER, isolation)]
    assert observed
    assert observed[-1] is not None
    assert [each.job.uid for each in observed[-1].jobs] == [JOB]
    assert [fault.job_uid for fault in isolation.faults] == ["odd"]


def test_pod_with_impossible_requests_stops_no_decision() -> None:
    seen = Watched()
    container = {"name": "main", "resources": {"requests": {"memory": "5Pi"}}}
    metadata = {"uid": "x", "namespace": "else", "name": "x", "resourceVersion": "1"}
    spec = {"nodeName": "n0", "containers": [container]}
    huge = records.answered({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    assert huge.requests["memory"] > NODE_AMOUNT_MAX
    seen.pods.change(None, huge)
    assert seen.world().nodes[0].used["memory"] == NODE_AMOUNT_MAX
    assert isinstance(seen.verdict(), Ongoing)


def test_node_has_rails_speed_devices_and_scale_up_domain() -> None:
    """The state builder takes all of these from the fabric and the labels."""
    seen = Watched()
    seen.nodes["uid-n1"] = replace(seen.nodes["uid-n1"], labels={PRODUCT: "GPU-A"})
    before = seen.world().nodes
    assert [(node.rails, node.relative_speed, node.device) for node in before] == [
        (None, EVEN, ""),
        (None, EVEN, "GPU-A"),
    ]
    rails = Rails((0, 1, 2, 3), (MiscabledRail(1, "mlx5_1", "it has no cable"),))
    seen.fabric(
        Fabric(
            levels=("rack", SCALE_UP),
            places={"n0": ("r0", ""), "n1": ("", "i0")},
            rails={"n1": rails},
            relative_speeds={"n1": RelativeSpeed(rails=rails.share)},
        )
    )
    first, second = seen.world().nodes
    assert first.domains == ("r0", scale_up_domains.NO_SCALE_UP_DOMAIN)
    assert not any(map(scale_up_domains.is_known, second.domains[:1]))
    assert second.domains[1] == "i0"
    assert (second.rails, second.relative_speed, second.device) == (
        rails,
        RelativeSpeed(rails=0.75),
        "GPU-A",
    )
    assert (first.rails, first.relative_speed) == (None, EVEN)
    assert seen.state_builder.machines.racks(("n0", "n1")) == 1
    # Nodes that did not change are the same ones.
    assert seen.world().nodes[0] is first


def test_devices_without_a_profile_are_found() -> None:
    seen = Watched()
    seen.nodes["uid-n1"] = replace(seen.nodes["uid-n1"], labels={PRODUCT: "GPU-B"})
    seen.world()
    (cached,) = seen.jobs.all()
    model = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
    profile = Profile(2, 1, (), devices=("GPU A",))
    workload = Workload(model, Parallelism(data=2), Recipe(2048, 1, 64), profile)
    assert seen.state_builder.unprofiled(cached, ("n0", "n1")) is None
    held = cached.with_workload(workload)
    assert seen.state_builder.unprofiled(held, ("n0", "n1", "gone")) == ("GPU-B",)
    assert seen.state_builder.unprofiled(held, ("n0",)) == ()


async def test_node_dead_before_launcher_registered_is_found_in_time() -> None:
    seen = Watched(phase=Phase.STARTING)
    await ask_all(seen)
    seen.now_s += SETTLE_S
    began_s = seen.now_s
    seen.run_cycle()
    while isinstance(seen.verdict(after_s=1.0), Ongoing):
        seen.leases.renewed["n0"] = f"t{seen.now_s // 10}"
        if seen.now_s % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)
        assert seen.now_s - began_s <= DETECT_S_MAX + node_leases.LEASE_DURATION_S_DEFAULT
    found = seen.cause()
    assert (found.code, found.nodes) == (CauseCode.NODE_LOST, ("n1",))
    assert found.message.endswith("its launcher sent no message and its kubelet missed its renewal")


class Cluster(Watched):
    """One job on many nodes, second by second: launchers beat and kubelets renew unless they are
    cut off or dead."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__(num_nodes=num_nodes)
        self.dead: set[int] = set()
        self.run_cycle()

    async def pass_time(self, for_s: int, *, cut: bool = False) -> Assessment:
        """One cycle a second, until the attempt ends; the last verdict."""
        for _ in range(for_s):
            self.now_s += 1.0
            for rank in range(0 if cut else self.num_nodes):
                if rank not in self.dead:
                    self.heartbeat(rank)
                    self.leases.renewed[f"n{rank}"] = f"t{(self.now_s + rank) // 10}"
            if self.now_s % node_leases.ASK_INTERVAL_S == 0:
                await ask_all(self)
            verdict = self.verdict()
            if isinstance(verdict, Ended):
                break
        return verdict


async def test_cut_ends_no_attempt_and_dead_nodes_are_found() -> None:
    cluster = Cluster(40)
    assert await cluster.pass_time(30) == Ongoing()
    verdict = await cluster.pass_time(60, cut=True)
    assert verdict == Ongoing(suspected=tuple(range(40)), held=True)
    cluster.dead = {7, 11}
    assert isinstance(await cluster.pass_time(25), Ongoing)
    verdict = await cluster.pass_time(35)
    assert isinstance(verdict, Ended)
    assert verdict.cause.nodes == ("n11", "n7")


async def test_one_dead_node_of_many_is_found_in_20_s() -> None:
    cluster = Cluster(40)
    await cluster.pass_time(30)
    cluster.dead = {7}
    verdict = await cluster.pass_time(20)
    assert isinstance(verdict, Ended)
    assert verdict.cause.nodes == ("n7",)


async def test_dead_node_is_found_where_all_are_control_plane() -> None:
    cluster = Cluster(3)
    for uid, node in tuple(cluster.nodes.items()):
        cluster.nodes[uid] = replace(node, labels={names.CONTROL_PLANE: ""})
    await cluster.pass_time(30)
    cluster.dead = {1}
    verdict = await cluster.pass_time(25)
    assert isinstance(verdict, Ended)
    assert verdict.cause.nodes == ("n1",)


async def test_deaf_operator_charges_no_late_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launchers send heartbeats every 8 s, and one tries again 11 s after the operator listens
    again: a timeout and the longest pause. Its kubelet was cut off from the API server as long."""
    monkeypatch.setattr(interval, "BEATS_PER_S", 0.2)
    cluster = Cluster(2)
    await cluster.pass_time(30)
    assert cluster.rank().silence_limit_s == SILENT_S + 6.0
    cluster.dead = {0}
    await cluster.pass_time(interval.INTERVAL_S_MAX)
    cluster.now_s += 60.0
    cluster.deaf_s += 60.0 - reception.GAP_S
    verdict = await cluster.pass_time(int(pacing.TIMEOUT_S) + interval.INTERVAL_S_MAX)
    assert verdict == Ongoing(suspected=(0,))
    cluster.dead.clear()
    assert await cluster.pass_time(60) == Ongoing()


async def test_slow_start_on_renewing_kubelet_runs_to_its_deadline() -> None:
    seen = Watched(phase=Phase.STARTING)
    seen.run_cycle()
    for _ in range(int(START_TIMEOUT_S / node_leases.ASK_INTERVAL_S)):
        assert isinstance(seen.verdict(after_s=node_leases.ASK_INTERVAL_S), Ongoing)
        seen.leases.renewed = dict.fromkeys(("n0", "n1"), f"t{seen.now_s // 10}")
        await ask_all(seen)
    assert seen.cause(after_s=1.0).code is CauseCode.LAUNCHER_UNHEARD


def test_time_without_hearing_is_not_counted_against_a_start() -> None:
    seen = Watched(phase=Phase.STARTING)
    seen.run_cycle()
    seen.deaf_s = START_TIMEOUT_S
    assert isinstance(seen.verdict(after_s=START_TIMEOUT_S + 1), Ongoing)
    assert seen.cause(after_s=START_TIMEOUT_S).code is CauseCode.LAUNCHER_UNHEARD


def test_time_without_hearing_is_no_silence() -> None:
    seen = Watched()
    seen.run_cycle()
    seen.heartbeat(0)
    seen.deaf_s = 60.0
    seen.now_s += 60.0
    assert [seen.rank(0).silent_s, seen.rank(1).silent_s] == [0.0, 0.0]
    seen.now_s += 5.0
    assert [seen.rank(0).silent_s, seen.rank(1).silent_s] == [5.0, 5.0]


def test_a_commit_stalls_from_when_it_last_came_further() -> None:
    seen = Watched(num_nodes=3, phase=Phase.QUEUED)
    begun = LEDGER.with_entries([entry()])
    for pod in seen.pods.of((JOB, 1)):
        seen.pods.change(pod, replace(pod, node=""))

    def stalled_s() -> float:
        return seen.world(begun).attempts[JOB, 1].stalled_s

    assert stalled_s() == 0.0
    seen.now_s += 50
    assert stalled_s() == 50.0
    unbound = seen.pods.of((JOB, 1))[0]
    seen.pods.change(unbound, replace(unbound, node="n0"))
    assert stalled_s() == 0.0
    bound = seen.pods.of((JOB, 1))[0]
    for old, new in ((bound, None), (None, unbound), (unbound, None), (None, bound)):
        # Whoever takes a pod away and brings it back gives the gang no more time.
        seen.now_s += 10
        seen.pods.change(old, new)
        stalled_s()
    assert stalled_s() == 40.0


async def test_commit_waiting_for_requests_of_others_does_not_stall() -> None:
    seen = Watched(phase=Phase.QUEUED)
    mine, other = entry(), replace(entry(), job_uid="another")
    ledger = LEDGER.with_entries([mine, other])
    crowd = [CreatePod(other, rank) for rank in range(UNDER_WAY_MAX)]

    def stalled_s() -> float:
        seen.now_s += 10
        return seen.world(ledger).attempts[JOB, 1].stalled_s

    assert (stalled_s(), stalled_s()) == (0.0, 10.0)
    seen.executor.start([*crowd, CreatePod(mine, 0)])
    assert (stalled_s(), stalled_s()) == (0.0, 0.0)
    seen.executor.start([])
    assert (stalled_s(), stalled_s()) == (10.0, 20.0)


def test_only_launchers_silent_for_long_are_examined() -> None:
    seen = Watched(phase=Phase.STARTING)
    seen.run_cycle()
    seen.run_cycle(after_s=UNREPORTED_S)
    assert repr(seen.lease_checker) == "<NodeLeaseChecker suspected=0 sightings=0>"
    seen.heartbeat(0, running=0)
    seen.run_cycle(after_s=0.5)
    assert repr(seen.lease_checker) == "<NodeLeaseChecker suspected=1 sightings=0>"


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_messages_of_a_finished_job_are_accepted_for_a_time(
    phase: Phase,
) -> None:
    seen = Watched()
    seen.run_cycle()
    seen.heartbeat(0)
    seen.record(phase)
    seen.run_cycle(after_s=1.0)
    seen.run_cycle(after_s=FORGET_S)
    assert seen.sessions.jobs() == {JOB}
    seen.run_cycle(after_s=1.0)
    seen.run_cycle(after_s=1.0)
    assert not seen.sessions.jobs()


def test_last_heartbeat_after_the_end_is_accepted() -> None:
    seen = Watched()
    seen.run_cycle()
    seen.record(Phase.SUCCEEDED)
    seen.run_cycle(after_s=FORGET_S / 2)
    seen.heartbeat(0, running=0, exited=1, progress=protocol.Progress(step=7))
    view = seen.sessions.attempt(JOB, 1)
    assert view is not None
    assert view.progress == protocol.Progress(step=7)


def test_failed_job_stays_revoked_while_its_pods_may_live() -> None:
    seen = Watched()
    seen.run_cycle()
    seen.record(Phase.FAILED)
    ledger = LEDGER.with_entries([entry(Cause(CauseCode.RANK_FAILED, "why"))])
    seen.run_cycle(ledger=ledger)
    seen.run_cycle(after_s=10 * FORGET_S, ledger=ledger)
    with pytest.raises(RefusedError) as refused:
        seen.heartbeat(0)
    assert refused.value.status == HTTPStatus.CONFLICT
