"""The usage of a node by its live pods, and what it promised them.

The operator and the simulator fill the nodes of a state by it. Live means: bound, and not ended; a
pod that is being deleted still holds its devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from railwright_scheduler.cluster import NODE_AMOUNT_MAX
from railwright_scheduler.model.snapshot import Amounts, Node, is_device


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What the live pods of a node use; ``foreign`` is the part of pods of no job."""

    used: Amounts = field(default_factory=dict)
    foreign: Amounts = field(default_factory=dict)


def sum_usage(ours: Iterable[Amounts], foreign: Iterable[Amounts]) -> NodeUsage:
    """Sum what the live pods of a node request: those of jobs, and those of no job."""
    others = add_amounts({}, foreign)
    return NodeUsage(add_amounts(dict(others), ours), others)


def add_amounts(total: dict[str, int], pods: Iterable[Amounts]) -> dict[str, int]:
    """Add what these pods request to the total."""
    for amounts in pods:
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def capped(amounts: Amounts) -> Amounts:
    """Cap amounts at the largest plausible one, as any pod or node can claim more."""
    return {name: min(amount, NODE_AMOUNT_MAX) for name, amount in amounts.items()}


def with_usage(node: Node, usage: NodeUsage, *, before: Node | None, capacity: Amounts) -> Node:
    """The node with the usage by its pods. ``before`` is this node in the last state of this
    leader, if it was there.

    For devices, whose names have a slash, a new leader takes the capacity for what the node had
    when its pods were bound. For other resources, part of the capacity is never allocatable: there
    it takes what pods of jobs hold when it starts.
    """
    used, foreign = usage.used, usage.foreign
    ours = {name: used[name] - foreign.get(name, 0) for name in used}
    had: Amounts = {name: capacity.get(name, 0) if is_device(name) else ours[name] for name in used}
    if before is not None:
        had = {**before.allocatable, **before.promised}
    kept = {name: min(had.get(name, 0), ours[name]) for name in used}
    promised = {name: kept[name] for name in used if kept[name] > node.allocatable.get(name, 0)}
    return replace(node, used=capped(used), foreign=capped(foreign), promised=promised)
