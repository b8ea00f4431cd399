"""Many attempts that end at once: revoked in few plans, beside the gangs that start meanwhile."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fixtures import GPU, node
from fixtures.attempts import FAILED, LOST, entry, pods, seen, world_of
from fixtures.jobs import with_role
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt import node_list
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import (
    ABORTING_SIZE_MAX,
    COMMITTING_SIZE_MAX,
    LEDGER_SIZE_MAX,
    EntryState,
    LedgerBudget,
)
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob
from railwright_scheduler.model.evidence import ObservedRank, PodState
from railwright_scheduler.model.snapshot import Unavailable
from railwright_scheduler.plan import Plan

NODES_A_JOB = 8
UID = "8a7b3c1d-52e4-4f60-9b71-0c2d3e4f{:04x}"


def name_of(number: int) -> str:
    """As a large cloud names its nodes."""
    return f"ip-10-{number >> 12}-{number >> 4 & 255}-{number & 15}.us-west-2.compute.example.com"


def nodes_of(job: int) -> tuple[str, ...]:
    """The nodes of a job, far apart."""
    return tuple(name_of(job + 2003 * rank) for rank in range(NODES_A_JOB))


def dead_job(number: int) -> ObservedJob:
    """A job whose nodes all died while it ran."""
    record = JobRecord(phase=Phase.RUNNING, attempt=1, nodes=nodes_of(number))
    lost = tuple(
        ObservedRank(rank, node, PodState.RUNNING, silent_s=19.0, lease_stale=True)
        for rank, node in enumerate(record.nodes)
    )
    plain = seen(record, ranks=lost)
    uid = UID.format(number)
    job = with_role(plain.job, uid=uid, name=f"pretrain-{number:04}", replicas=NODES_A_JOB)
    return replace(plain, job=job)


def lingering(jobs: list[ObservedJob]) -> dict[tuple[str, int], ObservedAttempt]:
    """Their pods: being deleted, on nodes that cannot end them."""
    return {
        (each.job.uid, 1): ObservedAttempt(
            pods=tuple(
                replace(pods("n0~")[0], uid=f"{each.job.uid}-{rank}", node_rank=rank, node=node)
                for rank, node in enumerate(each.record.nodes)
            ),
            placed=True,
        )
        for each in jobs
    }


def later(world: ClusterState, taken: Plan) -> ClusterState:
    """The world once the ledger and every record of this plan are written."""
    jobs = tuple(replace(each, record=taken.records[each.job.uid]) for each in world.jobs)
    return replace(world, ledger=taken.ledger, jobs=jobs)


def revoked(world: ClusterState) -> int:
    return sum(each.state is EntryState.ABORTING for each in world.ledger.entries)


def test_2000_lost_gangs_are_revoked_in_two_plans() -> None:
    """Their pods linger; a job that fits beside them is committed in the first of the plans."""
    dead = [dead_job(number) for number in range(2_000)]
    gone = [
        node(name, used={GPU: 8}, unavailable=Unavailable.UNREADY)
        for each in dead
        for name in each.record.nodes
    ]
    new = replace(seen(name="new"), job=with_role(seen(name="new").job, replicas=NODES_A_JOB))
    spare = [node(f"spare-{number}") for number in range(NODES_A_JOB)]
    world = world_of(new, *dead, nodes=(*gone, *spare), attempts=lingering(dead))
    world = replace(world, now_s=1_800_000_000)
    first = later(world, scheduling.plan(world))
    assert 1_000 < revoked(first) < 2_000
    assert first.ledger.entries[-1].state is EntryState.COMMITTING
    second = later(first, scheduling.plan(first))
    assert revoked(second) == 2_000
    assert all(each.record.ended == 1 for each in second.jobs if each.job.uid != "new")
    assert sum(each.size for each in second.ledger.entries) <= LEDGER_SIZE_MAX


def test_a_full_share_of_revocations_leaves_room_for_gangs() -> None:
    budget = LedgerBudget([entry(cause=FAILED, nodes=("n" * ABORTING_SIZE_MAX,))])
    assert not budget.add(entry(cause=LOST))
    assert budget.add(entry())


def test_a_full_share_of_gangs_leaves_room_for_revocations() -> None:
    budget = LedgerBudget([entry(nodes=("n" * COMMITTING_SIZE_MAX,))])
    assert not budget.add(entry())
    assert budget.add(entry(cause=FAILED))


def test_one_entry_alone_may_exceed_its_share() -> None:
    large = entry(nodes=("n" * (LEDGER_SIZE_MAX - 1000),))
    assert LedgerBudget([]).add(large)
    assert not LedgerBudget([entry(cause=FAILED, nodes=("n" * 1000,))]).add(large)


def test_no_entry_exceeds_what_etcd_takes() -> None:
    assert not LedgerBudget([]).add(entry(nodes=("n" * LEDGER_SIZE_MAX,)))


def test_an_entry_may_always_shrink() -> None:
    reported = replace(LOST, message="m" * 1000)
    lost = entry(cause=reported)
    budget = LedgerBudget([entry(nodes=("n" * LEDGER_SIZE_MAX,)), lost])
    assert budget.change(lost, lost.brief)
    assert not budget.change(lost.brief, lost)


def test_a_brief_entry_keeps_what_fences_and_what_is_lost() -> None:
    lost = entry(cause=replace(LOST, node="n1", last_lines="boom"))
    brief = lost.brief
    assert (brief.key, brief.nodes, brief.state) == (lost.key, lost.nodes, lost.state)
    assert brief.cause == Cause(CauseCode.NODE_LOST, "", nodes=("n1",))
    assert entry(cause=FAILED).brief.cause == replace(FAILED, message="")


NAMES = st.lists(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True))


@given(NAMES)
def test_a_folded_node_list_unfolds_in_order(names: list[str]) -> None:
    folded = node_list.fold(names)
    assert node_list.unfold(folded) == tuple(names)
    assert node_list.unfold(names) == tuple(names)
    assert len(folded) <= 1


def test_folded_node_list_has_common_text_once() -> None:
    assert node_list.fold(["gpu-12.east", "gpu-17.east"]) == ("gpu-1{2,7}.east",)
