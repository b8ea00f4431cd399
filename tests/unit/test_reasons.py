"""Every reason in words, with its numbers."""

from __future__ import annotations

from typing import get_args

import pytest

from fixtures import GPU, cluster, job, node, world
from railwright_scheduler.model.reasons import (
    CODES,
    HELD_REASONS,
    WAITING_REASONS,
    BindingBacklog,
    BlockedByReservation,
    InternalError,
    LedgerFull,
    MappingPending,
    NotEvaluated,
    PodNamesTaken,
    PriorityClassNotFound,
    QueueNotFound,
    Reason,
    RuntimeClassNotFound,
    RuntimeClassRefused,
    TierNotFound,
    TooLarge,
    Unreadable,
    code,
)
from railwright_scheduler.model.shortages import NeverFits, NotEnoughNodes, Shortage
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, TopologyConstraints
from railwright_scheduler.model.text import amount, compared
from railwright_scheduler.policy.decide import decide


def test_reasons_are_for_nodes_or_for_a_change() -> None:
    """Migration leaves nodes to jobs that wait for nodes; other jobs wait for the site, for their
    spec or for other pods to change."""
    assert set(WAITING_REASONS) == {
        NotEvaluated,
        NotEnoughNodes,
        BlockedByReservation,
        MappingPending,
        BindingBacklog,
        LedgerFull,
    }
    in_queue = {QueueNotFound, TierNotFound, NeverFits}
    unschedulable = {each for each in get_args(Reason) if each.unschedulable}
    assert unschedulable == {*HELD_REASONS, *in_queue} - {InternalError}
    assert set(HELD_REASONS).isdisjoint(in_queue)
    assert {*WAITING_REASONS, *HELD_REASONS, *in_queue} == set(get_args(Reason))


def test_the_codes_are_a_closed_set() -> None:
    reasons: list[Reason] = [
        NotEvaluated(position=7),
        QueueNotFound("q", ()),
        PriorityClassNotFound("c", ()),
        RuntimeClassNotFound("c", ()),
        RuntimeClassRefused("c", ""),
        PodNamesTaken(need=2, taken=1, first="train-worker-0-1"),
        TierNotFound("t", ()),
        NeverFits(1, (), 0, 0, 0, (), (), ()),
        NotEnoughNodes(1, (), 1, 0, "", "", 0, ()),
        BlockedByReservation(2, "team/a", first_need=1, first_free=0, need=1, free=1),
        MappingPending(need=1),
        BindingBacklog(need=1, pods=2048),
        LedgerFull(need=1, size=2, free=1, limit=2),
        InternalError("ValueError: no"),
        TooLarge(2, 1, "spec", 2),
        Unreadable("the job cannot be read: 'many' is no amount"),
    ]
    assert sorted(map(code, reasons)) == list(CODES)


def test_a_missing_queue_is_named_beside_those_that_exist() -> None:
    assert QueueNotFound("reserch", ("default", "research")).sentence() == (
        "queue 'reserch' does not exist; existing queues: default, research"
    )
    assert QueueNotFound("q", ()).sentence() == "queue 'q' does not exist; there is none"
    assert PriorityClassNotFound("c", ("high",)).sentence() == (
        "PriorityClass 'c' does not exist; existing classes: high"
    )
    assert RuntimeClassNotFound("kata", ("gvisor", "nvidia")).sentence() == (
        "RuntimeClass 'kata' does not exist; existing classes: gvisor, nvidia"
    )
    many = QueueNotFound("q", tuple("abcdefgh"))
    assert many.sentence().endswith("existing queues: a, b, c, d, e and 3 more")


def test_full_ledger_states_what_it_waits_for() -> None:
    assert LedgerFull(need=14_000, size=518_362, free=297_710, limit=1_400_000).sentence() == (
        "the ledger needs about 518,362 bytes to list its 14000 nodes, and attempts that are "
        "ending leave 297,710 of 1,400,000: it starts once their pods are gone, so repair or "
        "delete the nodes of these; or replicas of at most about 8040"
    )


def test_gang_larger_than_the_ledger_states_the_limit() -> None:
    assert LedgerFull(16_384, size=1_573_226, free=9, limit=1_400_000).sentence() == (
        "the ledger needs about 1,573,226 bytes to list its 16384 nodes and has 1,400,000 in "
        "all: replicas of at most about 14579, or nodes with shorter names"
    )


def test_taken_pod_names_are_counted_and_named() -> None:
    assert PodNamesTaken(need=2, taken=1, first="train-worker-0-1").sentence() == (
        "1 of its 2 pod names taken by pods of another job of this name, or of none; first "
        "train-worker-0-1: it starts once they are gone"
    )


def test_too_few_free_nodes_come_with_best_rack_and_causes() -> None:
    """The reason has the rack with most free nodes, and counts of unavailable ones."""
    assert _sentence("""
        node  block  rack    gpu  state     taints
        n0    b0     rack-a  8    -         -
        n1    b0     rack-a  8    -         -
        n2    b0     rack-b  8    -         -
        n3    b0     rack-b  8    cordoned  -
        n4    b0     rack-c  7/8  -         -
        n5    b0     rack-c  8    -         node.kubernetes.io/not-ready:NoExecute
        job   nodes  gpu  pods
        a     4      8    -
    """) == (
        "needs 4 nodes with 8 nvidia.com/gpu each; 3/6 nodes available; "
        "best rack b0/rack-a has 2; 1 cordoned, 1 tainted, 1 busy"
    )


def test_nodes_too_small_beside_foreign_pods_are_not_busy() -> None:
    """Pods of a DaemonSet do not end: also a node that a job uses too is not free for it later."""
    amounts = {"cpu": 8_000, GPU: 8, "pods": 110}
    small = {"cpu": 500}
    machines = [
        node("n0", allocatable=amounts, used=small, foreign=small),
        node("n1", allocatable=amounts, used={"cpu": 500, GPU: 8}, foreign=small),
        node("n2", allocatable=amounts, used={GPU: 8}),
        node("n3", allocatable=amounts),
    ]
    asked = job(replicas=2, per_pod={"cpu": 8_000, GPU: 8})
    (wait,) = decide(cluster(*machines, jobs=(asked,))).waiting
    assert wait.reason.sentence().endswith(
        "1/4 nodes available; 2 too small beside pods of no TrainingJob, 1 busy"
    )


def test_without_shared_domains_no_best_one_is_named() -> None:
    assert _sentence("""
        node  rack  gpu
        n0    -     8
        n1    -     0/8
        job   nodes  gpu
        a     2      8
    """) == ("needs 2 nodes with 8 nvidia.com/gpu each; 1/2 nodes available; 1 busy")


@pytest.mark.parametrize(
    ("waiting", "why"),
    [
        ("1 16 - -", "needs 1 node with 16 nvidia.com/gpu; at most 8 nvidia.com/gpu on any node"),
        ("3 8 - -", "needs 3 nodes with 8 nvidia.com/gpu each; at most 2 such nodes exist: "
         "replicas <= 2"),
        ("1 8 128 -", "needs 1 node with 8 nvidia.com/gpu, 128 cpu; no node has all of it "
         "together"),
        ("1 - - kind=x", "needs 1 node; no node matches the selector kind=x"),
    ],
)  # fmt: skip
def test_never_fitting_job_states_the_maximum(waiting: str, why: str) -> None:
    nodes, gpus, cpus, selector = waiting.split()
    assert (
        _sentence(f"""
        node  gpu  cpu
        n0    8    64
        n1    8    64
        n2    4    128
        job   nodes    gpu     cpu     selector
        a     {nodes}  {gpus}  {cpus}  {selector}
    """)
        == why
    )


def test_nodes_kept_out_by_taints_are_named_where_nothing_fits() -> None:
    assert _sentence("""
        node  gpu  taints
        n0    8    -
        n1    8    team=blue:NoSchedule
        n2    8    spot:NoExecute
        job   nodes  gpu
        a     2      8
    """) == (
        "needs 2 nodes with 8 nvidia.com/gpu each; at most 1 such nodes exist: replicas <= 1; "
        "2 more not counted for taints that are not tolerated: spot:NoExecute, "
        "team=blue:NoSchedule"
    )


def test_taints_are_named_where_no_node_tolerates_the_job() -> None:
    """The message does not deny that they have what the job needs: they may have all of it."""
    assert _sentence("""
        node  gpu  taints
        n0    8    team=blue:NoSchedule
        n1    8    team=blue:NoSchedule
        job   nodes  gpu
        a     2      8
    """) == (
        "needs 2 nodes with 8 nvidia.com/gpu each; 2 nodes, each with taints that are not "
        "tolerated: team=blue:NoSchedule"
    )


def test_jobs_ahead_are_placed_first_where_no_pod_is_bound() -> None:
    assert BindingBacklog(2, 3).sentence() == (
        "its 2 pods would fit; 3 pods of earlier gangs are created and bound first"
    )
    assert BindingBacklog(1, 0).sentence() == (
        "its 1 pod would fit; the jobs ahead of it are placed first"
    )


def test_resource_of_no_node_is_named() -> None:
    assert (
        _sentence("""
        node  gpu
        n0    8
        job   nodes  amd.com/gpu
        a     1      8
    """)
        == "needs 1 node with 8 amd.com/gpu; no node has any amd.com/gpu"
    )


def test_amounts_that_round_equally_are_shown_in_full() -> None:
    need, most = 2**40 + 1, 2**40 + 2**20
    short = NeverFits(1, (("memory", most),), 1, 1, 0, (Shortage("memory", most, need, 0),), (), ())
    assert short.sentence() == (
        f"needs 1 node with 1.00Ti memory; at most {need} of {most} memory on any node"
    )


def test_values_that_read_the_same_are_compared_in_full() -> None:
    assert compared("cpu", 120_000, 96_000) == ("120", "96")
    assert compared("memory", 300 * 2**30, 256 * 2**30) == ("300Gi", "256Gi")
    assert compared("memory", 2**40 + 1, 2**40 + 2) == (f"{2**40 + 1}", f"{2**40 + 2}")


@pytest.mark.parametrize("busy", [0, 1])
def test_wish_for_a_rack_is_no_limit(busy: int) -> None:
    """A job that prefers one rack has the same sentence as one that does not."""

    def sentence(constraints: TopologyConstraints) -> str:
        used = {GPU: 8}
        nodes = [node(f"n{i}", f"r{i}", used=used if i < 3 * busy else {}) for i in range(3 + busy)]
        asked = job("a", replicas=4, constraints=constraints)
        (wait,) = decide(cluster(*nodes, jobs=(asked,), levels=("rack",))).waiting
        return wait.reason.sentence()

    assert sentence(TopologyConstraints(preferred="rack")) == sentence(NO_CONSTRAINTS)


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 0, "0 cpu"),
        ("cpu", 250, "250m cpu"),
        ("cpu", 1_500, "1.5 cpu"),
        ("cpu", 10_050, "10.05 cpu"),
        ("cpu", 100_000, "100 cpu"),
        ("memory", 0, "0 memory"),
        ("memory", 1_023, "1023 memory"),
        ("memory", 2**30, "1Gi memory"),
        ("memory", 1_536 * 2**20, "1536Mi memory"),
        ("memory", 2_113_480_208 * 2**10, "1.96Ti memory"),
        ("hugepages-2Mi", 2**21, "2Mi hugepages-2Mi"),
        ("nvidia.com/gpu", 8, "8 nvidia.com/gpu"),
    ],
)
def test_amounts_read_as_people_write_them(resource: str, value: int, text: str) -> None:
    assert amount(resource, value) == text


def _sentence(text: str) -> str:
    (wait,) = decide(world(text)).waiting
    return wait.reason.sentence()
