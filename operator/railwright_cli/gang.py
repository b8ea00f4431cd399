"""A job on the fabric: its nodes by node rank, what its ranks do and send, the predicted step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from railwright_api import names
from railwright_api.placement import RankMapping
from railwright_api.schema import NODES_MAX, PROCESSES_MAX, NodeList, Part
from railwright_api.workload import Workload
from railwright_cli import yaml_files
from railwright_cli.amounts import count, seconds
from railwright_cli.errors import UsageError
from railwright_conversion import workloads
from railwright_scheduler.model import workload as core
from railwright_scheduler.policy import link_traffic
from railwright_topology.fabric import Fabric
from railwright_topology.folding import fold

RANGES_MAX = 2
"""Ranges of ranks in a label."""


class _Metadata(Part):
    name: str = ""
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)


class _Role(Part):
    name: str = ""
    group: str | None = None
    replicas: Annotated[int, Field(ge=0, le=NODES_MAX)] = 0
    processes_per_replica: Annotated[int, Field(ge=1, le=PROCESSES_MAX)] = 1


class _Spec(Part):
    roles: tuple[_Role, ...] = ()
    workload: Workload | None = None
    attempt: int = 0
    nodes: NodeList = ()
    mapping: RankMapping | None = None
    document: str = ""


class _Status(Part):
    attempt: int = 0
    nodes: int = 0


class Manifest(Part):
    """A TrainingJob, a Placement, a Profile or a List, as far as a picture needs it."""

    kind: str = ""
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()
    items: tuple[Manifest, ...] = ()


ABSENT = Manifest()


@dataclass(frozen=True, slots=True)
class Gang:
    """``nodes`` are in the order of node ranks; there are none if the job does not run.

    ``ranks_per_node`` is 0, and ``workload`` and ``mapping`` are None, where they are unknown.
    The nodes are those of the role that trains: ``first_node_rank`` and ``first_rank`` are the
    numbers that people know its first pod and rank by, as other roles may be before it.
    """

    name: str
    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 0
    workload: core.Workload | None = None
    mapping: RankMapping | None = None
    first_node_rank: int = 0
    first_rank: int = 0

    @property
    def places(self) -> dict[str, int]:
        """The place of each node within the role."""
        return {node: place for place, node in enumerate(self.nodes)}

    def node_ranks(self, places: Iterable[int]) -> str:
        """The node ranks of places within the role, such as ``[2-3]``."""
        return fold(str(self.first_node_rank + place) for place in places)

    def describe_ranks(self, places: Sequence[int]) -> str:
        """The ranks of ascending places within the role, such as ``0–7, 16–23, …``."""
        each = max(1, self.ranks_per_node)
        runs = itertools.groupby(enumerate(places), lambda at: at[1] - at[0])
        ranges = [[rank for _, rank in run] for _, run in runs]
        shown = []
        for run in ranges[:RANGES_MAX]:
            first = self.first_rank + run[0] * each
            last = self.first_rank + run[-1] * each + each - 1
            shown.append(f"{first}–{last}" if last > first else str(first))
        return ", ".join([*shown, "…"] if len(ranges) > RANGES_MAX else shown)

    def describe(self) -> Iterator[str]:
        """The description of the job, in lines."""
        if self.workload is not None:
            split = self.workload.split
            axes = {
                axis: getattr(split, axis) for axis in ("tensor", "context", "pipeline", "data")
            }
            shown = " × ".join(f"{axis} {parts}" for axis, parts in axes.items() if parts > 1)
            shown += f", experts over {split.expert}" if split.expert > 1 else ""
            shown += f", {count(split.servers, 'server')}" if split.servers else ""
            yield f"{count(split.ranks, 'rank')}, {self.ranks_per_node} a node: {shown}"
        if self.mapping is not None and (step := self.mapping.predicted) is not None:
            times_s = (step.step_seconds, step.network_order_seconds, step.other_jobs_seconds)
            placed_s, network_s, others_s = map(float, times_s)
            shown = f"predicted step {seconds(placed_s)}, in the network's order "
            shown += seconds(network_s)
            if others_s:
                shown += f"; {seconds(others_s)} of it from other jobs' traffic"
            yield shown
        if self.mapping is not None and self.mapping.truncated is not None:
            yield f"the search for an order of ranks ended early: {self.mapping.truncated}"


NO_JOB = Gang("")


def of(job: Manifest, placement: Manifest, profile: Manifest = ABSENT) -> Gang:
    """The gang of a TrainingJob and its Placement and Profile; each may be ABSENT. Raises
    UsageError."""
    metadata = job.metadata if job.metadata.name else placement.metadata
    placed = placement.metadata.labels.get(names.LABEL_JOB_NAME, placement.metadata.name)
    name = job.metadata.name or placed
    found = _training(job, placement)
    stated, mapping = job.spec.workload, placement.spec.mapping
    is_measured = mapping is not None and mapping.communication == "Measured"
    ranks = found.ranks_per_node * len(found.nodes)
    recorded = profile.spec.document if is_measured else ""
    try:
        workload = workloads.convert(stated, ranks, recorded, servers=_servers(job))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    if workload and workload.split.ranks != ranks:
        workload = None  # The spec has changed since the gang started.
    name = f"{metadata.namespace}/{name}"
    return dataclasses.replace(found, name=name, workload=workload, mapping=mapping)


def _servers(job: Manifest) -> int:
    """The number of ranks that are parameter servers."""
    name = job.spec.workload.parallelism.servers if job.spec.workload else None
    its = (each for each in job.spec.roles if each.name == name)
    return sum(each.replicas * each.processes_per_replica for each in its)


def _training(job: Manifest, placement: Manifest) -> Gang:
    """The nodes of the role that trains, and its ranks on each; 0 without the job."""
    nodes, roles = placement.spec.nodes, job.spec.roles
    trains = job.spec.workload.role if job.spec.workload else None
    role = next((each for each in roles if trains in (None, each.name)), None)
    if role is None:
        return Gang("", nodes)
    placed = placement.spec.roles or roles
    before = [*itertools.takewhile(lambda each: each.name != role.name, placed)]
    first_node_rank = sum(each.replicas for each in before)
    if len(placed) > 1:
        nodes = nodes[first_node_rank : first_node_rank + role.replicas]
    # A placed role has no more than its name and its pods.
    group = role.group or role.name
    its = {each.name: each for each in roles if (each.group or each.name) == group}
    sizes = [
        each.replicas * its[each.name].processes_per_replica for each in before if each.name in its
    ]
    return Gang(
        "",
        nodes,
        role.processes_per_replica,
        first_node_rank=first_node_rank,
        first_rank=sum(sizes),
    )


def read(path: Path) -> Gang:
    """The job in a file, as ``kubectl get tj/NAME placement/NAME-1 -o yaml`` prints it. A Profile
    may be beside it. Of several Placements the one of the newest attempt counts."""
    manifest = yaml_files.read(path, Manifest)
    objects = manifest.items if manifest.kind == "List" else (manifest,)
    jobs = [each for each in objects if each.kind == "TrainingJob"]
    placements = [each for each in objects if each.kind == "Placement"]
    if len(jobs) > 1 or not (jobs or placements):
        kinds = ", ".join(sorted({each.kind for each in objects} - {""})) or "nothing"
        raise UsageError(f"{path} has {kinds}: expected one TrainingJob, its Placement, or both")
    newest = max(placements, key=lambda each: each.spec.attempt, default=ABSENT)
    profile = next((each for each in objects if each.kind == "Profile"), ABSENT)
    return of(jobs[0] if jobs else ABSENT, newest, profile)


def crossing_bytes(fabric: Fabric, gang: Gang) -> dict[tuple[int, str], int]:
    """Bytes a step in both directions, by level and domain; none without a workload.

    A node without topology information forms a domain of its own, which is left out.
    """
    if gang.workload is None or not gang.nodes or not fabric.levels:
        return {}
    levels = [
        [fabric.place(node)[level] or (node,) for node in gang.nodes]
        for level in range(len(fabric.levels))
    ]
    numbers = [{domain: at for at, domain in enumerate(dict.fromkeys(its))} for its in levels]
    numbered = [[of[domain] for domain in its] for of, its in zip(numbers, levels, strict=True)]
    sent = link_traffic.crossing(gang.workload, gang.ranks_per_node, numbered)
    return {
        (level, domain): sent[level][at]
        for level, of in enumerate(numbers)
        for domain, at in of.items()
        if isinstance(domain, str)
    }
