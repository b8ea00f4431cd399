"""Revalidate the placement of gangs that are being bound.

Between the decision and the binding a node can be deleted, shrink, be cordoned, tainted or
relabelled, and another pod can take its capacity. The API server binds a pod to a node whatever is
there, so each scheduling cycle checks again until the last pod is bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from railwright_scheduler import assume
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model import text
from railwright_scheduler.model.reasons import TierNotFound
from railwright_scheduler.model.snapshot import Amounts, Job, Node, TopologyConstraints
from railwright_scheduler.placement import domains
from railwright_scheduler.placement.constraints import ResolvedConstraints
from railwright_scheduler.policy import constraints, eligibility
from railwright_scheduler.usage import add_amounts

InvalidNodes = Mapping[str, str]
"""Nodes that cannot take their rank any more, each with why: "is cordoned"."""

ALL_VALID: InvalidNodes = MappingProxyType({})


def invalid_nodes(
    entries: Sequence[Entry],
    *,
    nodes: Iterable[Node],
    unbound: Mapping[AttemptKey, Sequence[int]],
    begun: Collection[AttemptKey],
    jobs: Mapping[str, Job],
    isolation: Isolation,
) -> dict[AttemptKey, InvalidNodes]:
    """The invalid nodes of each committing entry; entries whose nodes are all valid are left out.

    ``unbound`` are the pods that an entry has, or may have, to bind. If two entries and the usage
    do not fit on one node together, one that has ``begun`` to bind keeps its place: its pods may be
    on their way to that node, whatever is decided now. Among equals the earlier one keeps it. An
    entry whose check raises counts as valid: its capacity stays assumed.
    """
    by_name = {node.name: node for node in nodes} if entries else {}
    assumed: dict[str, dict[str, int]] = {}
    found: dict[AttemptKey, InvalidNodes] = {}

    def order(entry: Entry) -> tuple[bool, bool, AttemptKey]:
        return entry.state is EntryState.COMMITTING, entry.key not in begun, entry.key

    for entry in sorted(entries, key=order):
        if entry.state is EntryState.COMMITTING:
            check = functools.partial(
                _invalid_nodes, entry, unbound[entry.key], by_name, assumed, jobs.get(entry.job_uid)
            )
            whys = isolation.run(Stage.COMMIT, entry.job_uid, check, otherwise=ALL_VALID)
            if whys:
                found[entry.key] = whys
                continue
        assume.add_assumed(assumed, entry, unbound[entry.key])
    return found


def wider_spread(entry: Entry, nodes: Mapping[str, Node], levels: Sequence[str]) -> str:
    """How the nodes of a committing entry span more domains than when they were selected, since
    some were relabelled; empty if they do not. ``levels`` names the domains of ``nodes``. If the
    levels themselves changed since, the two cannot be compared."""
    same = tuple(level for level, _ in entry.spans) == tuple(levels)
    if entry.state is not EntryState.COMMITTING or not same:
        return ""
    found = [nodes[name] for name in entry.nodes if name in nodes]
    now = domains.spans(found, len(levels))
    for (level, planned), count in zip(reversed(entry.spans), reversed(now), strict=True):
        if count > planned:
            return f"its nodes are in {count} domains of {level} now, planned was {planned}"
    return ""


def broken_constraint(
    entry: Entry,
    job: Job | None,
    nodes: Mapping[str, Node],
    levels: tuple[str, ...],
    finest: Callable[[], int],
) -> str:
    """Which spread or segment the nodes of a committing entry do not keep any more, since some were
    relabelled; empty if they keep all. They may span as many domains as when they were selected.
    ``finest`` is the last level of the tree of all nodes' domains. Without a job or, as for
    ``wider_spread``, with other levels, nothing is compared; an aborting entry has no levels."""
    same = tuple(level for level, _ in entry.spans) == levels
    if job is None or job.num_pods != len(entry.nodes) or not same:
        return ""
    for requested, names in _constrained(job, entry.nodes):
        if (requested.segments or requested.spreads) and all(name in nodes for name in names):
            limits = constraints.resolve(requested, levels, finest())
            its = [nodes[name] for name in names]
            broken = "" if isinstance(limits, TierNotFound) else _broken(limits, its, levels)
            if broken:
                return broken
    return ""


def _constrained(
    job: Job, nodes: tuple[str, ...]
) -> list[tuple[TopologyConstraints, tuple[str, ...]]]:
    """The constraints of the gang, each with the nodes that it holds for: those of the job for the
    pods of all roles that share them."""
    pairs = list(zip(job.roles, job.pod_ranges, strict=True))
    own = [(role.constraints, nodes[pods]) for role, pods in pairs if not role.shares_topology]
    shared = [(role, nodes[pods]) for role, pods in pairs if role.shares_topology]
    together = tuple(name for _, its in shared for name in its)
    return [*own, *((role.constraints, together) for role, _ in shared[:1])]


def _broken(limits: ResolvedConstraints, nodes: Sequence[Node], levels: Sequence[str]) -> str:
    names = ("cluster", *levels)
    for segment in limits.segments:
        for first in range(0, len(nodes), segment.pods):
            if not domains.in_one(nodes[first : first + segment.pods], segment.level):
                ranks = f"node ranks {first} to {first + segment.pods - 1}"
                return f"{ranks} are in several domains of {names[segment.level]} now"
    distinct = {node.name: node for node in nodes}.values()
    for spread in limits.spreads:
        found = domains.largest_share(distinct, spread.level)
        if found > spread.pods:
            where = f"one domain of {names[spread.level]}"
            return f"{found} of its nodes are in {where} now, at most {spread.pods} are allowed"
    return ""


def _invalid_nodes(
    entry: Entry,
    unbound: Iterable[int],
    nodes: Mapping[str, Node],
    assumed: Mapping[str, Amounts],
    job: Job | None,
) -> InvalidNodes:
    """Pods of several roles may share a node: what each requests is added to what is assumed."""
    found: dict[str, str] = {}
    own: dict[str, dict[str, int]] = {}
    demands, amounts = _demands(entry, job), entry.amounts
    for pod in unbound:
        name = entry.nodes[pod]
        total = own.setdefault(name, dict(assumed.get(name, {})))
        why = _why(nodes.get(name), amounts[pod], total, demands[pod] if demands else None)
        if why:
            found.setdefault(name, why)
        add_amounts(total, [amounts[pod]])
    return found


def _demands(entry: Entry, job: Job | None) -> list[eligibility.Demands]:
    """What each pod of the entry requires of its node; empty if the job is gone, or has another
    number of pods now."""
    if job is None or job.num_pods != len(entry.nodes):
        return []
    by_role = [(eligibility.Demands(role), role.replicas) for role in job.roles]
    return [demands for demands, replicas in by_role for _ in range(replicas)]


def _why(
    node: Node | None, per_pod: Amounts, assumed: Amounts, demands: eligibility.Demands | None
) -> str:
    """Why the node cannot take one pod of the job; empty if it can."""
    if node is None:
        return "went"
    if node.unavailable is not None:
        return f"is {node.unavailable}"
    if demands is not None and (unmet := demands.unmet_by(node)):
        return unmet
    for resource, amount in sorted(per_pod.items()):
        free = node.allocatable.get(resource, 0) - node.used.get(resource, 0)
        if amount and free - assumed.get(resource, 0) < amount:
            left = max(0, free - assumed.get(resource, 0))
            left_over, needed = text.compared(resource, left, amount)
            return f"has {left_over} {resource} left and not {needed}"
    return ""
