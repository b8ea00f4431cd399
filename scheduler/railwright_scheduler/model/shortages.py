"""Reasons of jobs that do not fit: on the cluster at all, or on what is free.

A sentence has both numbers, what is needed and what there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from railwright_scheduler.model import text
from railwright_scheduler.model.snapshot import (
    NO_CONSTRAINTS,
    Taint,
    TopologyConstraints,
    is_device,
)
from railwright_scheduler.model.waiting_reason import WaitingReason

Pairs = tuple[tuple[str, str], ...]
AmountPairs = tuple[tuple[str, int], ...]


class ExclusionCause(StrEnum):
    """Why a node that is large enough takes no pod of the job now."""

    UNREADY = "unready"
    CORDONED = "cordoned"
    LOST = "lost"
    DOUBLE_BOOKED = "double-booked"
    TAINTED = "tainted"
    FOREIGN_PODS = "too small beside pods of no TrainingJob"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Shortage:
    """A scarce resource: the request of a pod, the most any node has, and the nodes with enough."""

    resource: str
    need: int
    most: int
    nodes: int


PODS = "pods"
"""The resource of which each pod takes one."""


@dataclass(frozen=True, slots=True)
class JointShortage:
    """What ``roles`` request together of a resource, and the ``most`` that all nodes could give
    them, empty and healthy."""

    roles: tuple[str, ...]
    resource: str
    need: int
    most: int

    def sentence(self, constraints: TopologyConstraints) -> str:
        """The shortage for a person, as a part of a sentence."""
        need, most = (_amount(self.resource, value) for value in (self.need, self.most))
        return (
            f"roles {', '.join(self.roles)} need {need} beside each other{_on(constraints)}; the "
            f"nodes hold at most {most} of these roles, even if all were free"
        )


@dataclass(frozen=True, slots=True)
class RailsShort:
    """Why nodes that are large enough do not have their rails aligned: miscabled rails, each
    with the number of ``nodes`` of which it is; and of how many nodes no rails are known."""

    miscabled: tuple[tuple[int, int], ...]
    unknown: int


@dataclass(frozen=True, slots=True)
class NeverFits(WaitingReason):
    """This cluster could not run the job even if empty and healthy; ``role`` is the one that does
    not fit, in a job of several.

    ``matched`` nodes match the selector and the node affinity (``unmatched`` more the selector
    alone), ``tolerated`` of the matched ones carry no lasting taint that the job does not tolerate,
    ``candidates`` of those are large enough and together meet the job's ``constraints``.
    ``shortages`` are the resources that fewer than ``need`` nodes have enough of; ``untolerated``
    the taints that keep matched nodes away; ``rails`` are there where they must be aligned. If
    ``together`` is set, each role fits by itself, and ``role`` is the first of those that do not
    fit beside each other.
    """

    advice = (
        "Request no more than the message says the cluster has, or tolerate the taints that it "
        "names."
    )
    unschedulable = True

    need: int
    per_node: AmountPairs
    matched: int
    tolerated: int
    candidates: int
    shortages: tuple[Shortage, ...]
    selector: Pairs
    untolerated: tuple[Taint, ...]
    unmatched: int = 0
    constraints: TopologyConstraints = NO_CONSTRAINTS
    rails: RailsShort | None = None
    role: str = ""
    together: JointShortage | None = None

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        if self.together is not None:
            return self.together.sentence(self.constraints) + _outside(self)
        needs = _needs(self.need, self.per_node)
        return f"{_of_role(self.role)}{needs}{_on(self.constraints)}; {_never(self)}"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """How many of the candidates cannot be used now for one cause."""

    cause: ExclusionCause
    nodes: int


@dataclass(frozen=True, slots=True)
class NotEnoughNodes(WaitingReason):
    """The job fits the cluster, not what is free: ``free`` of ``candidates`` can take a pod now,
    all at once on the ``constraints``. ``role`` is the one that does not fit, in a job of several;
    if ``is_beside_roles``, it would fit without the job's other roles.

    ``best_domain`` is the domain with the most such nodes (``best_free``) of the finest level that
    nodes share, its labels from the coarsest level on joined by a slash; both names are empty where
    nodes share none. ``rails`` are there where they must be aligned. ``unmatched`` nodes match the
    selector and not the node affinity.
    """

    advice = (
        "Wait, or add nodes. The message has the number of free nodes, and what occupies the rest."
    )

    need: int
    per_node: AmountPairs
    candidates: int
    free: int
    best_level: str
    best_domain: str
    best_free: int
    excluded: tuple[Exclusion, ...]
    unmatched: int = 0
    constraints: TopologyConstraints = NO_CONSTRAINTS
    rails: RailsShort | None = None
    role: str = ""
    is_beside_roles: bool = False

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        now = f"{self.free}/{self.candidates} nodes available"
        if self.is_beside_roles:
            now += " beside the pods of its other roles"
        elif _on(self.constraints):
            now = f"at most {self.free} available together, {self.candidates} if all were free"
        needs = _needs(self.need, self.per_node) + _on(self.constraints)
        parts = [f"{_of_role(self.role)}{needs}", now]
        if self.best_level and self.best_free and not self.is_beside_roles:
            parts.append(f"best {self.best_level} {self.best_domain} has {self.best_free}")
        parts += [*_rails_short(self.rails), *_unmatched(self)]
        if self.excluded:
            parts.append(", ".join(f"{each.nodes} {each.cause.value}" for each in self.excluded))
        return "; ".join(parts)


def _on(constraints: TopologyConstraints) -> str:
    """The topology constraints of the job, as text."""
    limits = [
        f"all in one domain of {constraints.required}" if constraints.required else "",
        *(f"each {each.nodes} in one domain of {each.tier}" for each in constraints.segments),
        *(f"at most {each.nodes} in any domain of {each.tier}" for each in constraints.spreads),
        "all rails aligned" if constraints.aligned else "",
    ]
    return "".join(f", {each}" for each in limits if each)


def _never(reason: NeverFits) -> str:
    if not reason.matched:
        return _none_matches(reason)
    if not reason.tolerated:
        # What they have is not known here.
        nodes = text.count(reason.matched, "node")
        unmatched = "".join(f"; {each}" for each in _unmatched(reason))
        return f"{nodes}, each with taints that are not tolerated: {_taints(reason)}{unmatched}"
    impossible = [short for short in reason.shortages if short.most < short.need]
    if impossible:
        return ", ".join(_at_most(short) for short in impossible) + _outside(reason)
    if not reason.candidates and reason.tolerated and not _on(reason.constraints):
        return "no node has all of it together" + _outside(reason)
    most = reason.candidates - reason.candidates % reason.constraints.segment
    fix = f": replicas <= {most}" if most else ""
    exist = "together" if _on(reason.constraints) else "exist"
    short = "".join(f"; {each}" for each in _rails_short(reason.rails))
    return f"at most {reason.candidates} such nodes {exist}{fix}{short}{_outside(reason)}"


def _none_matches(reason: NeverFits) -> str:
    if reason.unmatched:
        which = " that match the selector" if reason.selector else ""
        return f"its node affinity matches none of {text.count(reason.unmatched, 'node')}{which}"
    if reason.selector:
        labels = ",".join(f"{key}={value}" for key, value in reason.selector)
        return f"no node matches the selector {labels}"
    return "the cluster has no nodes"


def _rails_short(rails: RailsShort | None) -> list[str]:
    """Which rails keep how many nodes away."""
    if rails is None:
        return []
    on = [f"rail {rail} on {text.count(nodes, 'node')}" for rail, nodes in rails.miscabled]
    found = [f"miscabled: {text.listed(tuple(on))}"] if on else []
    if rails.unknown:
        found.append(f"rails of {text.count(rails.unknown, 'node')} are not known")
    return found


def _amount(resource: str, value: int) -> str:
    return text.count(value, "pod") if resource == PODS else text.amount(resource, value)


def _at_most(short: Shortage) -> str:
    if short.most == 0:
        return f"no node has any {short.resource}"
    most = text.number(short.resource, short.most)
    if most == text.number(short.resource, short.need):
        return f"at most {short.most} of {short.need} {short.resource} on any node"
    return f"at most {most} {short.resource} on any node"


def _outside(reason: NeverFits) -> str:
    """Nodes that were not counted, and what keeps them out."""
    outside = "".join(f"; {each}" for each in _unmatched(reason))
    tainted = reason.matched - reason.tolerated
    if not tainted:
        return outside
    taints = _taints(reason)
    return f"{outside}; {tainted} more not counted for taints that are not tolerated: {taints}"


def _taints(reason: NeverFits) -> str:
    return text.listed(tuple(_taint(taint) for taint in reason.untolerated))


def _unmatched(reason: NeverFits | NotEnoughNodes) -> list[str]:
    count = text.count(reason.unmatched, "node")
    return [f"{count} not counted for its node affinity"] if reason.unmatched else []


def _of_role(role: str) -> str:
    return f"role {role} " if role else ""


def _needs(need: int, per_node: AmountPairs) -> str:
    amounts = [text.amount(resource, value) for resource, value in _devices_first(per_node)]
    each = f" with {', '.join(amounts)}" + (" each" if need != 1 else "") if amounts else ""
    return f"needs {text.count(need, 'node')}{each}"


def _devices_first(per_node: AmountPairs) -> list[tuple[str, int]]:
    """Requests in the order of importance, devices first; the one pod is left out."""
    shown = [pair for pair in per_node if pair != ("pods", 1)]
    return sorted(shown, key=lambda pair: _importance(pair[0]))


def _importance(resource: str) -> int:
    if is_device(resource):
        return 0
    plain = ("cpu", "memory", "ephemeral-storage")
    return 1 + plain.index(resource) if resource in plain else 1 + len(plain)


def _taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
