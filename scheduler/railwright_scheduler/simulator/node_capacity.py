"""The capacity of each node for our pods, while other pods use it too and are observed late.

A node shrinks, or a foreign pod is bound, and the reserved amount exceeds the remaining one. The
API server does not check capacity, so this cannot be prevented. A reservation made before the
change, or from a cache without it, is tolerated until it is released. Everything else is a double
booking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from railwright_scheduler import invariants, usage
from railwright_scheduler.attempt.gang import BindPod
from railwright_scheduler.attempt.ledger import EntryState, Ledger
from railwright_scheduler.invariants import Facts, PodFact, ViolationError
from railwright_scheduler.model.snapshot import Amounts
from railwright_scheduler.plan import Plan
from railwright_scheduler.simulator.objects import FOREIGN, OTHERS, NodeObject


class ToleratedCapacity:
    """What is tolerated on each node beyond what it has for us."""

    def __init__(self) -> None:
        self._tolerated: dict[str, Amounts] = {}

    @property
    def is_tight(self) -> bool:
        """Whether anything is tolerated anywhere."""
        return bool(self._tolerated)

    def of(self, facts: Facts, free: Mapping[str, Amounts]) -> Mapping[str, Amounts]:
        """What counts as there on each node. What was given back is tolerated no more."""
        given = invariants.given_away(facts, late=True)
        self._tolerated = {
            node: _each(min, amounts, given[node])
            for node, amounts in self._tolerated.items()
            if node in given and _exceeds(given[node], free.get(node, {}))
        }
        return {
            node: _each(max, amounts, self._tolerated.get(node, {}))
            for node, amounts in free.items()
        }

    def taken(self, facts: Facts, free: Mapping[str, Amounts]) -> None:
        """Others took something: what is given away stays so."""
        for node, given in invariants.given_away(facts, late=True).items():
            if _exceeds(given, free.get(node, {})):
                self._tolerated[node] = given

    def granted(
        self, facts: Facts, free: Mapping[str, Amounts], seen: Mapping[str, Amounts]
    ) -> None:
        """More was given away, from copies in which each node had what is ``seen``."""
        decided = invariants.given_away(facts)
        for node, given in invariants.given_away(facts, late=True).items():
            fitted = not _exceeds(decided.get(node, {}), seen.get(node, {}))
            if fitted and _exceeds(given, free.get(node, {})):
                self._tolerated[node] = given


def free(nodes: Collection[NodeObject], pods: Collection[PodFact]) -> dict[str, Amounts]:
    """What each node has, less what the pods of others take of it."""
    left: dict[str, Amounts] = {node.name: node.allocatable for node in nodes}
    for pod in pods:
        if pod.job_uid in OTHERS and pod.live and pod.node in left:
            has = left[pod.node]
            left[pod.node] = {
                name: max(0, amount - pod.amounts.get(name, 0)) for name, amount in has.items()
            }
    return left


def double_booked(nodes: Collection[NodeObject], pods: Collection[PodFact]) -> list[str]:
    """The nodes of which pods of several attempts hold more than the capacity."""
    found = []
    for node in nodes:
        its = [pod for pod in pods if pod.live and pod.node == node.name and pod.job_uid != FOREIGN]
        held = usage.sum_usage((pod.amounts for pod in its), ()).used
        holders = {pod.key for pod in its if any(pod.amounts.values())}
        if len(holders) > 1 and _exceeds(held, node.capacity):
            found.append(node.name)
    return found


def check_double_booked(plan: Plan, before: Ledger, nodes: Collection[str]) -> None:
    """I1, of one plan over the ledger ``before``: nothing is given to these double-booked nodes."""
    started = {entry.key for entry in before.entries}
    given = {
        (entry.key, node)
        for entry in plan.ledger.entries
        for node in entry.nodes
        if entry.key not in started and entry.state is EntryState.COMMITTING
    }
    for action in plan.actions:
        if isinstance(action, BindPod):
            given.add((action.entry.key, action.entry.nodes[action.pod.node_rank]))
    for key, node in sorted(given):
        if node in nodes:
            raise ViolationError(f"I1: {key} gets {node}, which is double-booked")


def _exceeds(given: Amounts, has: Amounts) -> bool:
    return any(amount > has.get(name, 0) for name, amount in given.items())


def _each(choose: Callable[[int, int], int], one: Amounts, other: Amounts) -> Amounts:
    return {name: choose(one.get(name, 0), other.get(name, 0)) for name in sorted({*one, *other})}
