"""Jobs that start and jobs that wait, in small snapshots."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, cluster, job, node, outcome, world
from fixtures.jobs import with_role
from railwright_scheduler.model.decisions import Decisions
from railwright_scheduler.model.reasons import BlockedByReservation, InternalError, QueueNotFound
from railwright_scheduler.model.shortages import NeverFits, NotEnoughNodes
from railwright_scheduler.model.snapshot import (
    Snapshot,
    Taint,
    Toleration,
    TopologyConstraints,
    Unavailable,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import Rails


def test_of_two_full_size_gangs_one_starts_and_other_holds_none() -> None:
    """The gang that waits reserves no node."""
    nodes = [node(f"n{i}") for i in range(4)]
    decisions = decide(cluster(*nodes, jobs=(job("b", replicas=4), job("a", replicas=4))))
    assert [admit.job_uid for admit in decisions.admitted] == ["a"]
    assert decisions.admitted[0].nodes == ("n0", "n1", "n2", "n3")
    assert [wait.job_uid for wait in decisions.waiting] == ["b"]


def test_partial_gang_keeps_its_reservation_from_later_jobs() -> None:
    assert _outcome("""
        node  rack  gpu
        n0    r0    8
        n1    r0    8
        n2    r1    0/8
        job   nodes  gpu
        big   3      8
        small 1      8
    """) == [
        "big waits, NotEnoughNodes: needs 3 nodes with 8 nvidia.com/gpu each; "
        "2/3 nodes available; best rack r0 has 2; 1 busy",
        "small waits, BlockedByReservation: needs 1 node and 2 are available, but team/big is ahead"
        " and reserved some of them: it needs 3 nodes and has 2 available; position 2 in the queue",
    ]


def test_a_waiting_gang_does_not_hold_up_jobs_for_other_nodes() -> None:
    decisions = _decide("""
        node  gpu  labels
        n0    8    kind=a
        n1    0/8  kind=a
        n2    8    kind=b
        job   nodes  gpu  selector
        big   2      8    kind=a
        other 1      8    kind=b
    """)
    assert [admit.nodes for admit in decisions.admitted] == [("n2",)]


def test_blocked_reason_names_first_job_reserving_same_nodes() -> None:
    """A job behind several reservations names the first that blocks it."""
    decisions = _decide("""
        node  gpu  labels
        n0    0/8  kind=a
        n1    8    kind=b
        n2    0/8  kind=b
        job   nodes  gpu  selector
        a     1      8    kind=a
        b     2      8    kind=b
        late  1      8    kind=b
    """)
    reason = decisions.waiting[2].reason
    assert reason == BlockedByReservation(3, "team/b", first_need=2, first_free=1, need=1, free=1)


def test_a_job_reserves_beside_the_jobs_ahead_of_it() -> None:
    decisions = _decide("""
        node  gpu  labels
        n0    0/8  kind=a
        n1    8    kind=a
        n2    8    kind=b
        job   nodes  gpu  selector
        a     2      8    kind=a
        any   2      8    -
        late  1      8    kind=b
        last  1      8    kind=a
    """)
    assert [admit.job_uid for admit in decisions.admitted] == ["late"]
    assert decisions.reservations == {"a": ("n0", "n1")}
    firsts = [
        (w.job_uid, w.reason.first)
        for w in decisions.waiting
        if type(w.reason) is BlockedByReservation
    ]
    assert firsts == [("any", "team/a"), ("last", "team/a")]


def test_unusable_node_is_not_reserved() -> None:
    (wait,) = _decide("""
        node  gpu  taints
        n0    8    node.kubernetes.io/memory-pressure:NoSchedule
        job   nodes  gpu  tolerations
        a     1      8    -
        b     1      8    *
    """).waiting
    assert (wait.job_uid, type(wait.reason)) == ("a", NotEnoughNodes)


def test_jobs_that_can_never_run_block_no_job() -> None:
    decisions = _decide("""
        node  gpu
        n0    8
        job    nodes  gpu  queue
        lost   1      8    nowhere
        wide   2      8    default
        deep   1      16   default
        fits   1      8    default
    """)
    assert [admit.job_uid for admit in decisions.admitted] == ["fits"]
    reasons = [type(wait.reason) for wait in decisions.waiting]
    assert reasons == [QueueNotFound, NeverFits, NeverFits]


def test_priority_then_age_then_uid_orders_jobs() -> None:
    decisions = _decide("""
        node  gpu
        n0    8
        job  nodes  gpu  priority  submitted  uid
        w    1      8    0         1          1
        x    1      8    5         9          4
        y    1      8    5         2          3
        z    1      8    5         2          2
    """)
    assert [admit.job_uid for admit in decisions.admitted] == ["2"]
    assert [wait.job_uid for wait in decisions.waiting] == ["3", "4", "1"]


@pytest.mark.parametrize("state", list(Unavailable))
def test_temporarily_absent_node_makes_a_job_wait(state: Unavailable) -> None:
    """An unready node counts for what could ever fit."""
    taint = "node.kubernetes.io/unschedulable:NoSchedule"
    (wait,) = _decide(f"""
        node  gpu  state    taints
        n0    8    -        -
        n1    8    {state}  {taint}
        job   nodes  gpu
        a     2      8
    """).waiting
    assert isinstance(wait.reason, NotEnoughNodes)
    assert [(each.cause.value, each.nodes) for each in wait.reason.excluded] == [(state.value, 1)]


def test_passing_taint_waits_and_lasting_taint_excludes_node() -> None:
    """Taints of node conditions pass; others exclude the node."""
    text = """
        node  gpu  taints
        n0    8    {}:NoSchedule
        job   nodes  gpu
        a     1      8
    """
    (passing,) = _decide(text.format("node.kubernetes.io/disk-pressure")).waiting
    (lasting,) = _decide(text.format("dedicated=research")).waiting
    assert isinstance(passing.reason, NotEnoughNodes)
    assert isinstance(lasting.reason, NeverFits)


@pytest.mark.parametrize(
    ("toleration", "starts"),
    [
        ("-", False),
        ("*", True),
        ("*:NoSchedule", True),
        ("*:NoExecute", False),
        ("k", True),
        ("k=v", True),
        ("k=w", False),
        ("k=v:NoSchedule", True),
        ("k=v:NoExecute", False),
        ("j", False),
    ],
)
def test_tolerations_mean_what_they_mean_in_kubernetes(toleration: str, starts: bool) -> None:
    decisions = _decide(f"""
        node  gpu  taints
        n0    8    k=v:NoSchedule,soft:PreferNoSchedule
        job   nodes  gpu  tolerations
        a     1      8    {toleration}
    """)
    assert bool(decisions.admitted) is starts


def test_a_toleration_with_an_unknown_operator_tolerates_nothing() -> None:
    tainted = node(taints=(Taint("k", "1", "NoSchedule"),))
    odd = job(tolerations=(Toleration("k", "Gt", "0", "NoSchedule"),))
    assert not decide(cluster(tainted, jobs=(odd,))).admitted


def test_pod_count_of_a_node_is_a_limit() -> None:
    decisions = _decide("""
        node  gpu  pods
        n0    8    2/110
        job   nodes  gpu  pods
        a     1      1    1
        b     1      1    1
        c     1      1    1
    """)
    assert [admit.job_uid for admit in decisions.admitted] == ["a", "b"]


def test_jobs_share_a_node_but_the_pods_of_one_gang_do_not() -> None:
    decisions = _decide("""
        node  gpu
        n0    8
        n1    4/8
        job   nodes  gpu
        a     2      2
        b     2      2
        c     1      4
    """)
    assert [set(admit.nodes) for admit in decisions.admitted] == [
        {"n0", "n1"},
        {"n0", "n1"},
        {"n0"},
    ]


def test_overcommitted_node_takes_nothing_of_that_resource() -> None:
    """Its free amount is negative."""
    decisions = _decide("""
        node  gpu   cpu
        n0    -2/8  64
        job   nodes  gpu  cpu
        a     1      -    4
        b     1      1    -
    """)
    assert [admit.job_uid for admit in decisions.admitted] == ["a"]


def test_an_empty_cluster_is_an_answer_too() -> None:
    (wait,) = decide(cluster(jobs=(job("a"),))).waiting
    assert isinstance(wait.reason, NeverFits)
    assert decide(cluster()) == Decisions((), ())


def test_oversized_request_never_fits_and_harms_no_one() -> None:
    """Other jobs of the same decision start."""
    huge = job("huge", per_pod={GPU: 10**30})
    decisions = decide(cluster(node(), jobs=(huge, job("fits", submitted_s=1))))
    assert [admit.job_uid for admit in decisions.admitted] == ["fits"]
    assert [wait.job_uid for wait in decisions.waiting] == ["huge"]


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (cluster(node("n0"), node("n0")), "'n0' is there twice"),
        (cluster(node("n0", "r0")), r"domains \('r0',\), expected one for each of \(\)"),
        (cluster(node("n0", used={GPU: -1})), "used.*is -1, expected 0 to"),
        (cluster(node("n0", allocatable={"memory": 2**63})), r"allocatable\['memory'\] is 92"),
        (cluster(jobs=(job("a"), job("a"))), r"uid 'a' is there twice \(team/a and team/a\)"),
    ],
)
def test_impossible_snapshot_is_refused_with_field_and_value(
    snapshot: Snapshot, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decide(snapshot)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"replicas": 0}, "has 0 replicas, expected at least 1"),
        ({"per_pod": {GPU: -8}}, "is -8, expected at least 0"),
    ],
)
def test_impossible_job_waits_alone_as_internal_error(changes: dict[str, Any], error: str) -> None:
    decisions = decide(cluster(node(), jobs=(job("a", **changes), job("b", submitted_s=1))))
    assert [admit.job_uid for admit in decisions.admitted] == ["b"]
    (wait,) = decisions.waiting
    assert isinstance(wait.reason, InternalError)
    assert error in wait.reason.error


def test_cordoned_node_keeps_no_job_behind_from_starting() -> None:
    """A gang that the healthy nodes could never hold reserves nothing."""
    nodes = [node(f"n{i:02}") for i in range(99)]
    nodes.append(node("n99", unavailable=Unavailable.CORDONED))
    small = [job(f"s{i:02}", replicas=1, submitted_s=1) for i in range(50)]
    decisions = decide(cluster(*nodes, jobs=(job("big", replicas=100), *small)))
    assert len(decisions.admitted) == 50
    assert [wait.job_uid for wait in decisions.waiting] == ["big"]


def test_recently_lost_node_counts_for_reservations() -> None:
    lost = node("n2", unavailable=Unavailable.UNREADY, recently_lost=True)
    for recently, reserved in ((True, {"big": ("n0", "n1", "n2")}), (False, {})):
        nodes = (node("n0"), node("n1"), replace(lost, recently_lost=recently))
        decisions = decide(cluster(*nodes, jobs=(job("big", replicas=3), job("s", submitted_s=1))))
        assert decisions.reservations == reserved
        assert len(decisions.admitted) == (0 if reserved else 1)


def test_reservation_fills_up_and_keeps_what_it_has() -> None:
    """A node that became free replaces one that is still busy, and is not given away again."""
    busy = {f"n{i}": node(f"n{i}", used={GPU: 8}) for i in range(6)}
    waits = cluster(*busy.values(), jobs=(job("big", replicas=3),))
    first = decide(waits).reservations
    assert first == {"big": ("n0", "n1", "n2")}
    freed = busy | {"n4": node("n4")}
    second = replace(waits, nodes=tuple(freed.values()), reserved=first)
    assert decide(second).reservations == {"big": ("n0", "n1", "n4")}
    freed |= {"n3": node("n3")}
    small = job("small", submitted_s=1)
    third = replace(second, nodes=tuple(freed.values()), reserved={"big": ("n0", "n1", "n4")})
    decisions = decide(replace(third, jobs=(*waits.jobs, small)))
    assert decisions.reservations["big"] == ("n0", "n3", "n4")
    assert decisions.admitted == ()


@pytest.mark.parametrize("constraints", ["required=rack", "segment=3@rack"])
def test_constrained_reservation_takes_the_domain_that_fills_up(constraints: str) -> None:
    decisions = _decide(f"""
        node  rack  gpu
        a0    r0    0/8
        a1    r0    0/8
        a2    r0    0/8
        b0    r1    8
        b1    r1    8
        b2    r1    0/8
        b3    r1    0/8
        job   nodes gpu constraints
        big   3     8   {constraints}
        small 1     8   -
    """)
    assert decisions.admitted == ()
    assert decisions.reservations["big"] == ("b0", "b1", "b2")


def test_pods_of_no_job_are_not_expected_to_end() -> None:
    """A job that asks for all that a node has, beside daemons, keeps no other waiting."""
    nodes = [
        node(f"n{i}", allocatable={"cpu": 64, GPU: 8}, used={"cpu": 1}, foreign={"cpu": 1})
        for i in range(4)
    ]
    greedy = job("greedy", replicas=4, per_pod={"cpu": 64})
    small = job("small", per_pod={GPU: 1}, submitted_s=1)
    decisions = decide(cluster(*nodes, jobs=(greedy, small)))
    assert decisions.reservations == {}
    assert [admit.job_uid for admit in decisions.admitted] == ["small"]


def test_jobs_share_a_node_beside_a_reservation() -> None:
    nodes = (node("n0", used={GPU: 2}), node("n1", used={GPU: 7}))
    wide = job("wide", replicas=2, per_pod={GPU: 4})
    fits, more = (job(name, per_pod={GPU: 2}, submitted_s=1) for name in ("fits", "more"))
    decisions = decide(cluster(*nodes, jobs=(wide, fits, more)))
    assert [(admit.job_uid, admit.nodes) for admit in decisions.admitted] == [("fits", ("n0",))]
    assert {wait.job_uid for wait in decisions.waiting} == {"wide", "more"}


def _decide(text: str) -> Decisions:
    return decide(world(text))


def _outcome(text: str) -> list[str]:
    return outcome(_decide(text)).splitlines()


def test_of_many_rail_orders_that_with_most_free_nodes_counts() -> None:
    """More than are looked at, and the only one with two free nodes is the last of them."""
    orders = list(itertools.permutations(range(4)))
    nodes = [replace(node(f"n{i:02}"), rails=Rails(order)) for i, order in enumerate(orders)]
    nodes.append(replace(node("n99"), rails=Rails(orders[-1])))
    gang = with_role(job("gang", replicas=2), constraints=TopologyConstraints(aligned=True))
    (admit,) = decide(cluster(*nodes, jobs=(gang,))).admitted
    assert admit.nodes == ("n23", "n99")


def test_job_waits_for_the_way_to_have_rails_that_could_hold_it() -> None:
    orders = list(itertools.permutations(range(4)))
    taken = {GPU: 8}
    nodes = [
        replace(node(f"n{i:02}{half}"), rails=Rails(order), used=taken if half else {})
        for i, order in enumerate(orders)
        for half in range(2)
    ]
    nodes.append(replace(node("n99"), rails=Rails(orders[-1])))
    gang = with_role(job("gang", replicas=3), constraints=TopologyConstraints(aligned=True))
    decisions = decide(cluster(*nodes, jobs=(gang,)))
    assert decisions.reservations == {"gang": ("n230", "n231", "n99")}
