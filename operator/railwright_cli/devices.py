"""What a job that waits requests of devices, and what becomes of those that it may use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from railwright_cli.api_server import ApiServer
from railwright_cli.feasibility import SchedulingSite, convert, read_site
from railwright_cli.inventory import NodeUse
from railwright_cli.progress import shown_progress
from railwright_cli.tables import Row
from railwright_scheduler.model.snapshot import Job, Node, Role, is_device
from railwright_scheduler.policy.eligibility import Eligibility

HOLDERS_SHOWN = 3
OF_NO_JOB = "pods of no job"


def read_device_rows(server: ApiServer, path: str) -> list[Row]:
    """A row for each device of the job with this path; none if it was deleted, or if the operator
    cannot read it either. Raises RequestError if the user may not list what it takes."""
    site, inventory, _ = read_site(server)
    manifest = server.find(path, dict[str, Any])
    if manifest is None:
        return []
    try:
        job, _ = convert(manifest, site)
    except ValueError:
        return []  # The message of the job says why.
    with shown_progress("comparing nodes with the job"):
        return device_rows(job, site, inventory.nodes)


def device_rows(job: Job, site: SchedulingSite, uses: Sequence[NodeUse]) -> list[Row]:
    """A row for each device that the job requests: how many; of those on the nodes that it may use,
    with what they are used for, how many are ``free``, ``available`` (free, and its pods could have
    them now: one of each role per node, on nodes with enough of everything), ``inUse``, and
    ``unusable`` (failed, or free on nodes that take no pods or have a taint); and which jobs hold
    the most."""
    devices = sorted({name for role in job.roles for name in role.per_pod if is_device(name)})
    return [_row(name, job, site.nodes, uses) for name in devices]


def _row(device: str, job: Job, nodes: Sequence[Node], uses: Sequence[NodeUse]) -> Row:
    roles = [role for role in job.roles if role.per_pod.get(device)]
    index = Eligibility(nodes)
    tolerating = [index.tolerated(role.tolerations) for role in roles]
    held: Counter[str] = Counter()
    free = available = used = unusable = 0
    for at in _eligible(roles, index):
        node, use = nodes[at], uses[at]
        here, has = node.used.get(device, 0), node.allocatable.get(device, 0)
        left, failed = max(0, has - here), max(0, use.devices.get(device, 0) - max(has, here))
        used += here
        unusable += failed
        allowed = [role for role, mask in zip(roles, tolerating, strict=True) if mask[at]]
        if node.unavailable is None and allowed:
            free += left
            available += max(
                (role.per_pod[device] for role in allowed if _fits(role, node)), default=0
            )
        else:
            unusable += left
        held.update({name: its[device] for name, its in use.jobs.items() if its[device]})
        if use.foreign[device]:
            held[OF_NO_JOB] += use.foreign[device]
    return {
        "device": device,
        "requested": sum(role.replicas * role.per_pod[device] for role in roles),
        "free": free,
        "available": available,
        "inUse": used,
        "unusable": unusable,
        "heldBy": [*_largest(held)],
    }


def _eligible(roles: Sequence[Role], index: Eligibility) -> list[int]:
    """The nodes that one of these roles may use, now or once taints are gone that pass, by the
    scheduler's own rules."""
    masks = [
        index.selected(role.selector)
        & index.matched(role.affinity)
        & index.tolerated_ever(role.tolerations)
        for role in roles
    ]
    return [at for at, its in enumerate(zip(*masks, strict=True)) if any(its)]


def _fits(role: Role, node: Node) -> bool:
    return all(
        node.allocatable.get(name, 0) - node.used.get(name, 0) >= amount
        for name, amount in role.per_pod.items()
    )


def _largest(held: Mapping[str, int]) -> Iterator[str]:
    """The holders of the most, and how many the others have together."""
    ordered = sorted(held.items(), key=lambda each: (-each[1], each[0]))
    for name, number in ordered[:HOLDERS_SHOWN]:
        yield f"{number} {name}"
    if others := sum(number for _, number in ordered[HOLDERS_SHOWN:]):
        yield f"{others} others"
