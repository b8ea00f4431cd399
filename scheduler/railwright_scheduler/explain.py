"""Reasons in words: the only place where a decision becomes text.

Every sentence carries both numbers, what is needed and what there is, and where it can the nearest
thing that would work.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from railwright_scheduler.model.decisions import (
    AmountPairs,
    BindingBacklog,
    BlockedByReservation,
    InternalError,
    LedgerFull,
    NeverFits,
    NotEnoughNodes,
    NotEvaluated,
    PodNamesTaken,
    PriorityClassMissing,
    QueueMissing,
    RailsShort,
    Reason,
    Shortage,
    TierMissing,
    TooLarge,
)
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, TIERS, Taint, TopologyConstraints
from railwright_topology.source_reports import SCALE_UP

_BINARY_UNITS = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DIGITS_EXACT = 5
_LISTED_MAX = 5


class Code(StrEnum):
    """The closed set of reasons, as conditions and events spell them."""

    NOT_EVALUATED = "NotEvaluated"
    QUEUE_NOT_FOUND = "QueueNotFound"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    POD_NAMES_TAKEN = "PodNamesTaken"
    TIER_NOT_FOUND = "TierNotFound"
    NEVER_FITS = "NeverFits"
    NOT_ENOUGH_NODES = "NotEnoughNodes"
    BLOCKED_BY_RESERVATION = "BlockedByReservation"
    BINDING_BACKLOG = "BindingBacklog"
    LEDGER_FULL = "LedgerFull"
    INTERNAL_ERROR = "InternalError"
    TOO_LARGE = "TooLarge"


CODES: Mapping[type[Reason], Code] = {
    NotEvaluated: Code.NOT_EVALUATED,
    QueueMissing: Code.QUEUE_NOT_FOUND,
    PriorityClassMissing: Code.PRIORITY_CLASS_NOT_FOUND,
    PodNamesTaken: Code.POD_NAMES_TAKEN,
    TierMissing: Code.TIER_NOT_FOUND,
    NeverFits: Code.NEVER_FITS,
    NotEnoughNodes: Code.NOT_ENOUGH_NODES,
    BlockedByReservation: Code.BLOCKED_BY_RESERVATION,
    BindingBacklog: Code.BINDING_BACKLOG,
    LedgerFull: Code.LEDGER_FULL,
    InternalError: Code.INTERNAL_ERROR,
    TooLarge: Code.TOO_LARGE,
}


def code(reason: Reason) -> str:
    """The reason's name, one of ``Code``."""
    return CODES[type(reason)].value


def sentence(reason: Reason) -> str:
    """The reason for a person, on one line."""
    match reason:
        case NotEvaluated():
            return (
                f"at position {reason.position} in the queue, and not evaluated yet: one "
                "scheduling cycle evaluates only so many jobs"
            )
        case InternalError():
            return (
                f"the operator failed to handle this job: {reason.error}; it tries again with "
                "back-off, and other jobs are not affected"
            )
        case QueueMissing() | PriorityClassMissing():
            return _missing(reason)
        case PodNamesTaken():
            return (
                f"{reason.taken} of its {_count(reason.need, 'pod name')} taken by pods of another "
                f"job of this name, or of none; first {reason.first}: it starts once they are gone"
            )
        case TierMissing():
            return _no_tier(reason)
        case NeverFits() | NotEnoughNodes():
            return _does_not_fit(reason)
        case BlockedByReservation():
            return _behind(reason)
        case BindingBacklog():
            return (
                f"there is room for its {_count(reason.need, 'pod')}; {reason.pods} of gangs "
                "decided before it are made and bound first"
            )
        case LedgerFull():
            return _ledger_full(reason)
        case TooLarge():
            return (
                f"the job's spec has {reason.size:,} bytes as JSON, at most {reason.limit:,} are "
                f"taken: {reason.part} has {reason.part_size:,} of them; move what it holds to a "
                "ConfigMap, a volume or the image"
            )


def amount(resource: str, value: int) -> str:
    """An amount with its resource: 1500 of cpu is ``1.5 cpu``, 2**30 of memory ``1Gi memory``."""
    return f"{_number(resource, value)} {resource}"


def _missing(reason: QueueMissing | PriorityClassMissing) -> str:
    if isinstance(reason, QueueMissing):
        kind, kinds, name = "queue", "queues", reason.queue
    else:
        kind, kinds, name = "PriorityClass", "classes", reason.name
    existing = (
        f"existing {kinds}: {_listed(reason.existing)}" if reason.existing else "there is none"
    )
    return f"{kind} {name!r} does not exist; {existing}"


def _no_tier(reason: TierMissing) -> str:
    if reason.tier == SCALE_UP:
        return (
            f"no tier {reason.tier!r}: no scale-up domains are known that nest with the network's "
            "levels; the Fabric's status lists the known ones"
        )
    if not reason.existing:
        return f"no tier {reason.tier!r}: of this network no levels are known"
    levels = _listed(reason.existing)
    names = ", ".join(TIERS)
    return (
        f"no tier {reason.tier!r}: the network's levels are {levels}, the coarsest first; {names} "
        "are the finest that nodes share and those around it"
    )


def _on(constraints: TopologyConstraints) -> str:
    """The topology constraints of the job, as text."""
    asked = [
        f"all in one domain of {constraints.required}" if constraints.required else "",
        f"each {constraints.segment} in one domain of {constraints.segment_tier}"
        if constraints.segment
        else "",
        f"at most {constraints.spread} in any domain of {constraints.spread_tier}"
        if constraints.spread
        else "",
        "all rails aligned" if constraints.aligned else "",
    ]
    return "".join(f", {each}" for each in asked if each)


def _never(reason: NeverFits) -> str:
    if not reason.matched:
        return _none_matches(reason)
    impossible = [short for short in reason.shortages if short.most < short.need]
    if impossible:
        return ", ".join(_at_most(short) for short in impossible) + _outside(reason)
    if not reason.candidates and reason.tolerated and reason.constraints == NO_CONSTRAINTS:
        return "no node has all of it together" + _outside(reason)
    most = reason.candidates - reason.candidates % max(1, reason.constraints.segment)
    fix = f": replicas <= {most}" if most else ""
    exist = "stand so" if reason.constraints != NO_CONSTRAINTS else "exist"
    short = "".join(f"; {each}" for each in _rails_short(reason.rails))
    return f"at most {reason.candidates} such nodes {exist}{fix}{short}{_outside(reason)}"


def _none_matches(reason: NeverFits) -> str:
    if reason.unmatched:
        which = " that match the selector" if reason.selector else ""
        return f"its node affinity matches none of {_count(reason.unmatched, 'node')}{which}"
    if reason.selector:
        labels = ",".join(f"{key}={value}" for key, value in reason.selector)
        return f"no node matches the selector {labels}"
    return "the cluster has no nodes"


def _rails_short(rails: RailsShort | None) -> list[str]:
    """Which rails keep how many nodes away."""
    if rails is None:
        return []
    on = [f"rail {rail} on {_count(nodes, 'node')}" for rail, nodes in rails.miscabled]
    found = [f"astray: {_listed(tuple(on))}"] if on else []
    if rails.unknown:
        found.append(f"rails of {_count(rails.unknown, 'node')} are not known")
    return found


def _at_most(short: Shortage) -> str:
    if short.most == 0:
        return f"no node has any {short.resource}"
    most = _number(short.resource, short.most)
    if most == _number(short.resource, short.need):
        return f"at most {short.most} of {short.need} {short.resource} on any node"
    return f"at most {most} {short.resource} on any node"


def _outside(reason: NeverFits) -> str:
    """Nodes that were not counted, and what keeps them out."""
    outside = "".join(f"; {each}" for each in _unmatched(reason))
    tainted = reason.matched - reason.tolerated
    if not tainted:
        return outside
    taints = _listed(tuple(_taint(taint) for taint in reason.untolerated))
    return f"{outside}; {tainted} more not counted for taints that are not tolerated: {taints}"


def _unmatched(reason: NeverFits | NotEnoughNodes) -> list[str]:
    count = _count(reason.unmatched, "node")
    return [f"{count} not counted for its node affinity"] if reason.unmatched else []


def _does_not_fit(reason: NeverFits | NotEnoughNodes) -> str:
    if isinstance(reason, NotEnoughNodes):
        return _not_enough(reason)
    needs = _needs(reason.need, reason.per_node)
    return f"{_of_role(reason.role)}{needs}{_on(reason.constraints)}; {_never(reason)}"


def _of_role(role: str) -> str:
    return f"role {role} " if role else ""


def _not_enough(reason: NotEnoughNodes) -> str:
    now = f"{reason.free} of {_count(reason.candidates, 'node')} can take one now"
    if reason.is_beside_roles:
        now += " beside the pods of its other roles"
    elif reason.constraints != NO_CONSTRAINTS:
        now = f"{reason.free} stand so now, {reason.candidates} if all were free"
    needs = _needs(reason.need, reason.per_node) + _on(reason.constraints)
    parts = [f"{_of_role(reason.role)}{needs}", now]
    if reason.best_level and reason.best_free:
        parts.append(f"best {reason.best_level} {reason.best_domain} has {reason.best_free}")
    parts += [*_rails_short(reason.rails), *_unmatched(reason)]
    if reason.excluded:
        parts.append(", ".join(f"{each.nodes} {each.cause.value}" for each in reason.excluded))
    return "; ".join(parts)


def _behind(reason: BlockedByReservation) -> str:
    return (
        f"needs {_count(reason.need, 'node')} and {reason.free} can take one now, but "
        f"{reason.first} is ahead: it needs {_count(reason.first_need, 'node')} and "
        f"{reason.first_free} can take one now; position {reason.position} in line"
    )


def _ledger_full(reason: LedgerFull) -> str:
    limit = reason.free if reason.passes else reason.limit
    most = reason.need * limit // reason.size
    fix = f"replicas of at most about {most}"
    asked = (
        f"the ledger takes about {reason.size:,} bytes to list its {_count(reason.need, 'node')}"
    )
    if not reason.passes:
        return f"{asked} and has {limit:,} in all: {fix}, or nodes with shorter names"
    return (
        f"{asked}, and attempts that are ending leave {limit:,} of {reason.limit:,}: it starts "
        f"once their pods are gone, so repair or delete the nodes of these; or {fix}"
    )


def _needs(need: int, per_node: AmountPairs) -> str:
    asked = [amount(resource, value) for resource, value in _devices_first(per_node)]
    each = f" with {', '.join(asked)}" + (" each" if need != 1 else "") if asked else ""
    return f"needs {_count(need, 'node')}{each}"


def _devices_first(per_node: AmountPairs) -> list[tuple[str, int]]:
    """Requests in the order of importance, devices first; the one pod is left out."""
    plain = ("cpu", "memory", "ephemeral-storage")
    shown = [pair for pair in per_node if pair != ("pods", 1)]
    return sorted(shown, key=lambda pair: plain.index(pair[0]) if pair[0] in plain else -1)


def _number(resource: str, value: int) -> str:
    if resource == "cpu":
        return _cores(value)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return _bytes(value)
    return str(value)


def _cores(millicores: int) -> str:
    whole, rest = divmod(millicores, 1000)
    if rest and not whole:
        return f"{millicores}m"
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") if rest else str(whole)


def _bytes(count: int) -> str:
    """The largest binary unit that is exact in few digits, else two decimals, rounded down."""
    largest = ""
    for power, unit in zip(range(len(_BINARY_UNITS), 0, -1), _BINARY_UNITS, strict=True):
        whole, rest = divmod(count, 1024**power)
        if whole and not rest and len(str(whole)) <= _DIGITS_EXACT:
            return f"{whole}{unit}"
        if whole and not largest:
            largest = f"{whole}.{rest * 100 // 1024**power:02d}{unit}"
    return largest or str(count)


def _taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _LISTED_MAX
    return ", ".join(names[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")
