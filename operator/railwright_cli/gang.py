"""A job on the fabric: its nodes by node rank, what its ranks do, and what that was placed for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from railwright_api import names
from railwright_api.placement import RankMapping
from railwright_api.schema import RANKS_MAX, NodeList
from railwright_api.workload import Workload
from railwright_cli import workloads
from railwright_cli.amounts import seconds
from railwright_cli.asking import UsageError
from railwright_cli.tree import count
from railwright_conversion import workloads as reading
from railwright_scheduler import workload as core
from railwright_topology.sources import documents
from railwright_topology.sources.documents import Value

PIECES = 2
"""Of ranks that do not follow each other so many pieces are told."""

_NODES: TypeAdapter[tuple[str, ...]] = TypeAdapter(NodeList)


@dataclass(frozen=True, slots=True)
class Gang:
    """``nodes`` are in the order of node ranks, none where the job does not run. How many ranks
    each has, what they do and what the mapping is good for is not known of every job."""

    name: str
    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 0
    workload: core.Workload | None = None
    mapping: RankMapping | None = None

    @property
    def ranks(self) -> dict[str, int]:
        """The node rank of each node."""
        return {node: rank for rank, node in enumerate(self.nodes)}

    def called(self, *node_ranks: int) -> str:
        """The ranks of these node ranks, ascending, for people; of many pieces the first ones."""
        each = max(1, self.ranks_per_node)
        pieces: list[tuple[int, int]] = []
        for rank in node_ranks:
            if pieces and pieces[-1][1] == rank * each:
                pieces[-1] = pieces[-1][0], (rank + 1) * each
            else:
                pieces.append((rank * each, (rank + 1) * each))
        told = [
            str(first) if end == first + 1 else f"{first}–{end - 1}"
            for first, end in pieces[:PIECES]
        ]
        return ", ".join([*told, *(["…"] if len(pieces) > PIECES else [])])

    def about(self) -> Iterator[str]:
        """What is known of it, in lines for people."""
        if self.workload is not None:
            split = self.workload.split
            ways = {
                "tensor": split.tensor,
                "context": split.context,
                "pipeline": split.pipeline,
                "data": split.data,
            }
            told = " × ".join(f"{way} {parts}" for way, parts in ways.items() if parts > 1)
            told += f", experts over {split.expert}" if split.expert > 1 else ""
            told += f", {count(split.servers, 'server')}" if split.servers else ""
            yield f"{count(split.ranks, 'rank')}, {self.ranks_per_node} a node: {told}"
        if self.mapping is not None and (step := self.mapping.predicted) is not None:
            placed, network = seconds(step.step_seconds), seconds(step.network_order_seconds)
            told = f"a step is predicted to take {placed}, in the network's order {network}"
            if step.other_jobs_seconds:
                told += f"; {seconds(step.other_jobs_seconds)} of it for what other jobs send"
            yield told
        if self.mapping is not None and self.mapping.truncated is not None:
            yield f"the search for an order of ranks ended early: {self.mapping.truncated}"


NOBODY = Gang("")


def of(job: Mapping[str, Any] | None, placement: Mapping[str, Any] | None) -> Gang:
    """What these objects say of it: a TrainingJob, its Placement, or both. Raises UsageError for
    what no such object says."""
    spec, status, its = (_part(job, key) for key in ("spec", "status", "metadata"))
    placed, placements = _part(placement, "spec"), _part(placement, "metadata")
    labelled = _part(placements, "labels").get(names.LABEL_JOB_NAME)
    name = its.get("name") or labelled or placements.get("name", "")
    namespace = (its or placements).get("namespace", "default")
    try:
        nodes = _NODES.validate_python(placed.get("nodes") or status.get("nodes") or ())
        each, mapping = int(spec.get("numProcPerNode") or 0), placed.get("mapping")
        if not 0 <= each * len(nodes) <= RANKS_MAX:
            raise ValueError(f"{each} ranks a node: expected at most {RANKS_MAX} in all")
        said = Workload.model_validate(spec["workload"]) if spec.get("workload") else None
        does = reading.workload(said) if said else None
        if does and does.split.ranks + does.split.servers != each * len(nodes):
            does = None  # It was changed since.
        told = RankMapping.model_validate(mapping) if mapping else None
        return Gang(f"{namespace}/{name}", nodes, each, does, told)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{place}: {first['msg']}" if place else first["msg"]
        raise UsageError(f"{name or 'a job without a name'}: {why}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name or 'a job without a name'}: {error}") from error


def read(path: Path) -> Gang:
    """The job that a file has, as ``kubectl get tj/NAME placement/NAME-1 -o yaml`` prints it. Of
    several Placements the newest attempt's counts."""
    source = str(path)
    document = documents.read(source, path.read_text(encoding="utf-8"))
    for workload in _workloads(document):
        workloads.refuse_unknown(workload)
    objects = [*_objects(workloads.plain(document))]
    jobs = [each for each in objects if each.get("kind") == "TrainingJob"]
    placements = [each for each in objects if each.get("kind") == "Placement"]
    if len(jobs) > 1 or not (jobs or placements):
        kinds = ", ".join(sorted({str(each.get("kind")) for each in objects})) or "nothing"
        raise UsageError(f"{source} has {kinds}: expected one TrainingJob, its Placement, or both")
    newest = max(placements, key=_attempt, default=None)
    return of(jobs[0] if jobs else None, newest)


def _workloads(document: Value) -> Iterator[Value]:
    """The ``spec.workload`` of each object in a file."""
    items = _entry(document, "items")
    for each in items.content if items and isinstance(items.content, tuple) else (document,):
        spec = _entry(each, "spec")
        if spec and (workload := _entry(spec, "workload")):
            yield workload


def _entry(value: Value, key: str) -> Value | None:
    return value.content.get(key) if isinstance(value.content, Mapping) else None


def _objects(content: object) -> Iterable[Mapping[str, Any]]:
    if not isinstance(content, Mapping):
        return []
    found = content.get("items") or () if content.get("kind") == "List" else [content]
    return [each for each in found if isinstance(each, Mapping)]


def _part(of: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """What stands there, if it is of the kind that should."""
    found = (of or {}).get(key)
    return found if isinstance(found, Mapping) else {}


def _attempt(placement: Mapping[str, Any]) -> int:
    said = str(_part(placement, "spec").get("attempt", "0"))
    return int(said) if said.isdecimal() else 0
