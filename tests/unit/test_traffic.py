"""Other jobs' traffic on shared uplinks: it lengthens a step, and quieter uplinks are taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import GPU, job, node
from fixtures.attempts import LOST, entry, seen, world_of
from fixtures.jobs import with_role
from railwright_scheduler import cluster_state
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ObservedJob
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.model.snapshot import Job, Node, SendingJob, Snapshot
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links

GPT = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
TALKS = Workload(
    GPT,
    Parallelism(data=64),
    Recipe(2048, 1, 64, sharding=Sharding.PARAMETERS, framework=Framework.TORCH),
)
"""A ring through eight nodes that waits for its links most of the time."""

WORKS = Workload(GPT, Parallelism(tensor=8, pipeline=2, data=4), Recipe(2048, 1, 1 << 14))
"""As many nodes that have so much to do in between that they seldom send."""

LEVELS = ("block", "rack")


def blocks(*racks: tuple[int, ...], rack: int = 8) -> tuple[Node, ...]:
    """Blocks of racks of so many free nodes; the first nodes of a rack are those that are busy."""
    return tuple(
        node(
            f"n{block}-{at}-{place}",
            f"b{block}",
            f"r{at}",
            machine="DGX A100",
            used={} if place >= rack - free else {GPU: 8},
        )
        for block, its in enumerate(racks)
        for at, free in enumerate(its)
        for place in range(rack)
    )


def gang(**changes: object) -> Job:
    return job("a", replicas=8, ranks_per_pod=8, workload=TALKS, **changes)


def running(block: int, *racks: int, workload: Workload = TALKS) -> SendingJob:
    """A job on the first four nodes of two racks."""
    nodes = tuple(f"n{block}-{at}-{place}" for at in racks for place in range(4))
    return SendingJob(workload, 8, nodes)


def admitted(
    nodes: tuple[Node, ...], *others: SendingJob, asked: Job | None = None, times: float = 8.0
) -> Admit:
    asked = asked or gang()
    (found,) = decide(
        Snapshot(
            LEVELS, nodes, ("default",), (asked,), (Links(times), Links(times)), senders=others
        )
    ).admitted
    return found


def predicted(found: Admit) -> PredictedStep:
    assert found.score is not None
    assert found.score.predicted is not None
    return found.score.predicted


def blocks_of(found: Admit) -> set[str]:
    return {name[:2] for name in found.nodes}


def racks_of(found: Admit) -> set[str]:
    return {name[:4] for name in found.nodes}


def test_step_is_longer_if_others_share_uplinks() -> None:
    """The traffic of running jobs reduces the bandwidth."""
    alone = predicted(admitted(blocks((4, 4))))
    beside = predicted(admitted(blocks((4, 4)), running(0, 0, 1)))
    assert alone.others_us == 0
    assert beside.placed_us == alone.placed_us + beside.others_us
    assert beside.others_us > 0.1 * alone.placed_us


def test_of_two_equal_blocks_the_one_with_quieter_racks_is_taken() -> None:
    nodes = blocks((4, 4), (4, 4))
    assert blocks_of(admitted(nodes)) == {"n0"}
    moved = admitted(nodes, running(0, 0, 1))
    assert blocks_of(moved) == {"n1"}
    assert predicted(moved).others_us == 0


def test_racks_with_more_capacity_win_for_shorter_step() -> None:
    """Two racks of four are the smallest that suffice, and others send out of both."""
    nodes = blocks((4, 4, 6, 6))
    assert racks_of(admitted(nodes)) == {"n0-0", "n0-1"}
    found = admitted(nodes, running(0, 0, 1))
    assert racks_of(found) == {"n0-2", "n0-3"}
    assert predicted(found).others_us == 0


def test_small_sender_moves_no_job_to_larger_racks() -> None:
    nodes = blocks((4, 4, 6, 6))
    found = admitted(nodes, running(0, 0, 1, workload=WORKS))
    assert racks_of(found) == {"n0-0", "n0-1"}
    assert predicted(found).others_us < 0.01 * predicted(found).placed_us


def test_job_in_one_rack_ignores_traffic_that_leaves_it() -> None:
    found = admitted(blocks((4, 8), (8, 8)), running(1, 0, 1), running(0, 0, 1))
    assert predicted(found).others_us == 0
    assert racks_of(found) == {"n0-1"}


def test_nodes_that_it_had_are_kept_among_equal_ones() -> None:
    nodes = blocks((4, 4), (4, 4))
    had = tuple(f"n0-{at}-{place}" for at in (0, 1) for place in range(4, 8))
    quiet = running(0, 0, 1, workload=WORKS)
    assert blocks_of(admitted(nodes, quiet)) == {"n1"}
    assert blocks_of(admitted(nodes, quiet, asked=gang(before=had))) == {"n0"}


def test_a_gang_of_the_same_decision_counts_as_well() -> None:
    """In the order of the line: the second has to share one of the first one's racks."""
    jobs = gang(), replace(gang(), uid="b", name="b", submitted_s=1)
    before = Snapshot(LEVELS, blocks((6, 6, 4)), ("default",), jobs, (Links(8.0),) * 2)
    first, second = decide(before).admitted
    assert predicted(first).others_us == 0
    assert predicted(second).others_us > 0
    later = replace(
        before,
        jobs=jobs[1:],
        senders=(SendingJob(TALKS, 8, first.nodes),),
        nodes=tuple(
            replace(each, used={GPU: 8}) if each.name in first.nodes else each
            for each in before.nodes
        ),
    )
    assert decide(later).admitted == (second,)


@pytest.mark.parametrize("times", [1.0, 0.5])
def test_uplinks_without_limit_have_no_contention(times: float) -> None:
    beside = predicted(admitted(blocks((4, 4)), running(0, 0, 1), times=times))
    assert beside == predicted(admitted(blocks((4, 4)), times=times))


def test_a_job_that_lost_a_node_is_not_counted() -> None:
    nodes = blocks((4, 4))
    gone = replace(running(0, 0, 1), nodes=("gone", *running(0, 0, 1).nodes[1:]))
    assert predicted(admitted(nodes, gone)) == predicted(admitted(nodes))


def test_unknown_machines_have_no_known_traffic() -> None:
    nodes = tuple(replace(each, machine="abacus") for each in blocks((4, 4), (4, 4)))
    assert admitted(nodes, running(0, 0, 1)) == admitted(nodes)


NODES = tuple(f"m{at}" for at in range(8))
RUNS = JobRecord(phase=Phase.RUNNING, attempt=2, ended=1, nodes=NODES)


def senders(record: JobRecord, *entries: Entry) -> list[tuple[str, ...]]:
    jobs = [seen(record, job=gang())]
    return [each.nodes for each in cluster_state.sending_jobs(jobs, {"a": entries})]


def test_a_job_sends_from_its_commit_to_its_end() -> None:
    other = tuple(reversed(NODES))
    assert senders(JobRecord()) == []
    assert senders(JobRecord(), entry(nodes=other)) == [other]
    assert senders(RUNS) == [NODES]
    assert senders(RUNS, entry(nodes=NODES, attempt=2)) == [NODES]
    assert senders(RUNS, entry(nodes=other, attempt=1, cause=LOST)) == [NODES]
    assert senders(RUNS, entry(nodes=NODES, attempt=2, cause=LOST)) == []
    assert senders(replace(RUNS, ended=2)) == []


def test_only_multi_node_jobs_with_workload_send() -> None:
    """Jobs on one node, or without a workload, have no traffic."""
    silent = seen(RUNS, job=with_role(gang(), workload=None))
    assert [*cluster_state.sending_jobs([silent], {})] == []
    assert senders(replace(RUNS, nodes=NODES[:4])) == []


def test_cycle_places_a_job_around_running_ones() -> None:
    nodes = blocks((4, 4), (4, 4))
    record = replace(RUNS, nodes=running(0, 0, 1).nodes)
    ours, others = seen(job=gang()), seen(record, name="b", job=replace(gang(), uid="b"))

    def placed(*jobs: ObservedJob) -> set[str]:
        asked = replace(world_of(*jobs, nodes=nodes, levels=LEVELS), links=(Links(8.0),) * 2)
        (begun,) = scheduling.plan(asked).ledger.entries
        return {name[:2] for name in begun.nodes}

    assert placed(ours) == {"n0"}
    assert placed(ours, others) == {"n1"}
