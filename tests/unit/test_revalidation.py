"""Nodes that change between the plan and the binding: the gang is planned again, nothing is
overcommitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, node
from fixtures.attempts import LOST, entry, pods, seen, world_of
from fixtures.jobs import job
from railwright_scheduler import plan as scheduling
from railwright_scheduler import revalidation
from railwright_scheduler.attempt.ledger import AttemptKey, EntryRole
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.model.snapshot import (
    Role,
    Taint,
    TierLimit,
    Toleration,
    TopologyConstraints,
    Unavailable,
)

TAINT = Taint("team", "blue", "NoSchedule")


def whys(*nodes: Any, unbound: tuple[int, ...] = (0, 1), **asked: Any) -> dict[str, str]:
    """The invalid nodes of the one gang on n0 and n1, with reasons."""
    found = revalidation.invalid_nodes(
        [entry()],
        nodes=nodes,
        unbound={("a", 1): unbound},
        jobs={"a": job(replicas=2, **asked)},
        begun=(),
        isolation=Isolation(),
    )
    return dict(found.get(("a", 1), {}))


def test_a_gang_on_nodes_as_they_were_planned_fits() -> None:
    assert whys(node("n0"), node("n1", taints=(replace(TAINT, effect="PreferNoSchedule"),))) == {}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unavailable": Unavailable.CORDONED}, "is cordoned"),
        ({"used": {GPU: 1}}, f"has 7 {GPU} left and not 8"),
        ({"used": {GPU: 99}}, f"has 0 {GPU} left and not 8"),
        ({"allocatable": {GPU: 7, "pods": 110}}, f"has 7 {GPU} left and not 8"),
        ({"allocatable": {"pods": 110}}, f"has 0 {GPU} left and not 8"),
        ({"taints": (TAINT,)}, "is tainted team=blue:NoSchedule"),
        ({"labels": {"kind": "b200"}}, "is not labelled kind=h100"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_node_that_changed_is_named_with_what_changed(changes: dict[str, Any], why: str) -> None:
    sound = {"labels": {"kind": "h100"}}
    nodes = (node("n0", **sound), node("n1", **(sound | changes)))
    assert whys(*nodes, selector={"kind": "h100"}) == {"n1": why}


def test_request_of_zero_fits_a_node_that_has_less() -> None:
    """Fewer devices are left than its pods use, as when one failed."""
    failed = node("n0", allocatable={GPU: 7, "pods": 110}, used={GPU: 8})
    found = revalidation.invalid_nodes(
        [entry(roles=(EntryRole("worker", 2, {GPU: 0, "pods": 1}),))],
        nodes=(failed, node("n1")),
        unbound={("a", 1): (0, 1)},
        jobs={"a": job(replicas=2)},
        begun=(),
        isolation=Isolation(),
    )
    assert not found


def test_a_node_that_is_gone_is_named() -> None:
    assert whys(node("n0")) == {"n1": "went"}


def test_tolerated_taint_and_bound_rank_change_nothing() -> None:
    """Neither makes a node invalid for the gang."""
    tolerated = (Toleration("team", "Exists", "", ""),)
    assert whys(node("n0"), node("n1", taints=(TAINT,)), tolerations=tolerated) == {}
    assert whys(node("n0"), node("n1", used={GPU: 8}), unbound=(0,)) == {}


class Counted(tuple[Toleration, ...]):
    """Tolerations, and how often they are gone through."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[Toleration]:
        Counted.reads += 1
        return super().__iter__()


def test_tolerations_are_read_once_for_all_nodes_of_a_gang() -> None:
    """A job may have thousands of them, and a gang thousands of tainted nodes."""
    tolerations = Counted(
        [Toleration("other", "Exists", "", ""), Toleration("team", "Exists", "", "")]
    )
    nodes = [node(name, taints=(TAINT,)) for name in ("n0", "n1")]
    assert whys(*nodes, tolerations=tolerations) == {}
    assert Counted.reads == 1


@pytest.mark.parametrize(
    ("begun", "gives_way"),
    [((), "b"), ((("a", 1),), "b"), ((("b", 1),), "a"), ((("a", 1), ("b", 1)), "b")],
)
def test_of_two_gangs_that_no_longer_fit_one_stays(
    begun: tuple[AttemptKey, ...], gives_way: str
) -> None:
    """The node lost capacity during both commits. Pods of a gang that has begun to bind may be on
    their way to it; otherwise the first one stays."""
    both = [replace(entry(roles=(EntryRole("worker", 2, {GPU: 4}),)), job_uid=uid) for uid in "ab"]
    unbound = {each.key: (0, 1) for each in both}
    nodes = (node("n0"), node("n1", used={GPU: 2}))
    found = revalidation.invalid_nodes(
        both, nodes=nodes, unbound=unbound, jobs={}, begun=begun, isolation=Isolation()
    )
    assert found == {(gives_way, 1): {"n1": f"has 2 {GPU} left and not 4"}}


def test_roles_that_share_a_node_count_together() -> None:
    """Each pod would fit on the node by itself; the second role's does not beside the first's."""
    roles = (EntryRole("worker", 1, {GPU: 6}), EntryRole("evaluator", 1, {GPU: 2}))
    shared = entry(nodes=("n0", "n0"), roles=roles)

    def found(free: int, unbound: tuple[int, ...]) -> dict[str, str]:
        whys = revalidation.invalid_nodes(
            [shared],
            nodes=[node("n0", used={GPU: 8 - free})],
            unbound={shared.key: unbound},
            jobs={},
            begun=(),
            isolation=Isolation(),
        )
        return dict(whys.get(shared.key, {}))

    assert found(8, (0, 1)) == {}
    assert found(7, (0, 1)) == {"n0": f"has 1 {GPU} left and not 2"}
    assert found(7, (1,)) == {}


def test_each_role_is_held_to_its_own_requirements() -> None:
    """Only the second role's selector excludes its node."""
    roles = (
        Role(1, {GPU: 1}, "worker", selector={"kind": "h100"}),
        Role(1, {GPU: 1}, "evaluator", selector={"kind": "l4"}),
    )
    planned = entry(roles=tuple(EntryRole(each.name, 1, {GPU: 1}) for each in roles))
    found = revalidation.invalid_nodes(
        [planned],
        nodes=[node("n0", labels={"kind": "h100"}), node("n1", labels={"kind": "h100"})],
        unbound={planned.key: (0, 1)},
        jobs={"a": replace(job(), roles=roles)},
        begun=(),
        isolation=Isolation(),
    )
    assert found == {planned.key: {"n1": "is not labelled kind=l4"}}


def test_what_an_aborting_gang_may_still_be_given_counts() -> None:
    gangs = [entry(), replace(entry(cause=LOST), job_uid="b")]
    unbound = {gangs[0].key: (0, 1), gangs[1].key: (1,)}
    found = revalidation.invalid_nodes(
        gangs,
        nodes=(node("n0"), node("n1")),
        unbound=unbound,
        jobs={},
        begun=(),
        isolation=Isolation(),
    )
    assert list(found) == [("a", 1)]


@pytest.mark.parametrize(
    ("racks", "stated"),
    [
        (("b0/r0", "b0/r0"), ""),
        (("b9/r9", "b9/r9"), ""),
        (("b0/r0", "b0/r1"), "its nodes are in 2 domains of rack now, planned was 1"),
        (("b0/r0", "b1/r0"), "its nodes are in 2 domains of rack now, planned was 1"),
        (("b0/r0", "b0/"), "its nodes are in 2 domains of rack now, planned was 1"),
        (("/r0", "/r0"), "its nodes are in 2 domains of rack now, planned was 1"),
        (("b0/", "b0/"), "its nodes are in 2 domains of rack now, planned was 1"),
    ],
)
def test_gang_with_relabelled_nodes_states_the_wider_spread(
    racks: tuple[str, ...], stated: str
) -> None:
    planned = entry(spans=(("block", 1), ("rack", 1)))
    nodes = {
        name: node(name, *at.split("/")) for name, at in zip(planned.nodes, racks, strict=True)
    }
    assert revalidation.wider_spread(planned, nodes, ("block", "rack")) == stated
    assert revalidation.wider_spread(planned.aborted(LOST), nodes, ("block", "rack")) == ""


@pytest.mark.parametrize(
    ("constraints", "racks", "stated"),
    [
        ({"spreads": (TierLimit("rack", 2),)}, "r0 r0 r1 r1", ""),
        (
            {"spreads": (TierLimit("rack", 2),)},
            "r0 r1 r1 r1",
            "3 of its nodes are in one domain of rack now, at most 2 are allowed",
        ),
        ({"segments": (TierLimit("nearest", 2),)}, "r1 r1 r0 r0", ""),
        (
            {"segments": (TierLimit("nearest", 2),)},
            "r0 r0 r0 r1",
            "node ranks 2 to 3 are in several domains of rack now",
        ),
        ({"segments": (TierLimit("row", 2),)}, "r0 r1 r0 r1", ""),
    ],
)
def test_relabelled_node_that_breaks_a_constraint_is_found(
    constraints: dict[str, Any], racks: str, stated: str
) -> None:
    """Although the nodes of the gang span no more domains than planned."""
    asked = Role(4, {GPU: 8}, "worker", constraints=TopologyConstraints(**constraints))
    names = tuple(f"n{rank}" for rank in range(4))
    planned = entry(nodes=names, spans=(("rack", 2),))
    nodes = tuple(node(name, rack) for name, rack in zip(names, racks.split(), strict=True))
    world = world_of(
        seen(job=replace(job("a"), roles=(asked,))),
        nodes=nodes,
        levels=("rack",),
        entries=(planned,),
        attempts={planned.key: ObservedAttempt(pods=pods("- - - -"), placed=True)},
    )
    (after,) = scheduling.plan(world).ledger.entries
    assert (after.cause.message if after.cause else "") == stated


def test_constraint_of_all_roles_counts_their_nodes_together() -> None:
    """Two roles share the job's spread; a third has one of its own."""
    asked = TopologyConstraints(spreads=(TierLimit("rack", 1),))
    shared = tuple(Role(1, {GPU: 1}, name, constraints=asked) for name in ("worker", "evaluator"))
    own = Role(1, {GPU: 1}, "reader", constraints=asked, shares_topology=False)
    gang = replace(job("a"), roles=(*shared, own))
    names = ("n0", "n1", "n1")
    planned = entry(nodes=names, spans=(("rack", 2),))

    def broken(*racks: str) -> str:
        nodes = {name: node(name, rack) for name, rack in zip(("n0", "n1"), racks, strict=True)}
        return revalidation.broken_constraint(planned, gang, nodes, ("rack",), lambda: 1)

    assert broken("r0", "r1") == ""
    assert (
        broken("r0", "r0") == "2 of its nodes are in one domain of rack now, at most 1 are allowed"
    )
    assert revalidation.broken_constraint(planned, None, {}, ("rack",), lambda: 1) == ""


def test_level_that_appears_or_goes_invalidates_no_placement() -> None:
    """Only a wider spread at a known level does."""
    planned = entry(spans=(("block", 1), ("rack", 2)))
    apart = {"n0": node("n0", "r0", "h0"), "n1": node("n1", "r1", "h1")}
    assert revalidation.wider_spread(planned, apart, ("rack", "host")) == ""
    coarser = {"n0": node("n0", "s0", "b0", "r0"), "n1": node("n1", "", "b0", "r0")}
    assert revalidation.wider_spread(planned, coarser, ("spine", "block", "rack")) == ""
    assert revalidation.wider_spread(planned, {}, ("block", "rack")) == ""


def test_gang_on_partly_labelled_nodes_keeps_planned_span() -> None:
    """Unlabelled nodes count as domains of their own, as in the plan."""
    mixed = (node("n0", "b0", "r0"), node("n1", "b0", ""))
    taken = scheduling.plan(world_of(seen(), nodes=mixed, levels=("block", "rack")))
    (begun,) = taken.ledger.entries
    assert (begun.cause, begun.spans) == (None, (("block", 1), ("rack", 2)))


def test_a_gang_moved_apart_is_planned_again_together() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("- -"), placed=True)}
    moved = (node("n0", "r0"), node("n1", "r1"), node("n2", "r1"))
    planned = entry(spans=(("rack", 1),))
    world = world_of(seen(), nodes=moved, levels=("rack",), entries=(planned,), attempts=attempts)
    taken = scheduling.plan(world)
    (aborted,) = taken.ledger.entries
    assert aborted.cause is not None
    assert "2 domains of rack" in aborted.cause.message
    later = scheduling.plan(world_of(seen(taken.records["a"]), nodes=moved, levels=("rack",)))
    assert [(each.nodes, each.spans) for each in later.ledger.entries] == [
        (("n1", "n2"), (("rack", 1),))
    ]


def test_invalid_gang_rolls_back_and_is_planned_elsewhere() -> None:
    """The plan aborts the entry and commits another one later."""
    taken_by_another = (node("n0"), node("n1", used={GPU: 4}), node("n2"), node("n3"))
    attempts = {("a", 1): ObservedAttempt(pods=pods("- -"), placed=True)}
    world = world_of(seen(), nodes=taken_by_another, entries=(entry(),), attempts=attempts)
    taken = scheduling.plan(world)
    (aborted,) = taken.ledger.entries
    assert aborted.cause is not None
    assert aborted.cause.message == (
        f"node n1 has 4 {GPU} left and not 8, and node rank 1 was not bound to it yet"
    )
    gone = replace(aborted, nodes=aborted.nodes)
    recorded = seen(taken.records["a"])
    later = scheduling.plan(world_of(recorded, nodes=taken_by_another, entries=(gone,)))
    assert [each.nodes for each in later.ledger.entries] == [("n0", "n2")]
