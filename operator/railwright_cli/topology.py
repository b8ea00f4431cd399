"""``railwright topology``: the network as sources report it, and their conflicts."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
import typer
from rich.console import RenderableType

from railwright_cli import cluster, gang, tree
from railwright_cli.amounts import count
from railwright_cli.api_server import ApiServer
from railwright_cli.gang import NO_JOB, Gang
from railwright_cli.jobs import Context, Namespace, reference
from railwright_cli.picture import Picture
from railwright_cli.progress import counted_progress, shown_progress
from railwright_cli.tables import show_document
from railwright_cli.terminal import show
from railwright_topology import fabric, graphs, outline
from railwright_topology.fabric import Fabric, Facts
from railwright_topology.grouping import group
from railwright_topology.networks import Network
from railwright_topology.sources import formats, labels
from railwright_topology.sources.formats import File
from railwright_topology.wiring import WiringError

_FILES = f"each one of {', '.join(sorted(formats.READERS))}"
_JOB = (
    "NAME or NAMESPACE/NAME of a job to show; with files, a file that has the job and its "
    "Placement, as kubectl get -o yaml prints them"
)


@dataclass(frozen=True, slots=True)
class View:
    """A fabric with what is shown beside it: unreadable files, slow devices, a job, and the age of
    the operator's sources."""

    fabric: Fabric
    problems: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    gang: Gang = NO_JOB
    sources: tuple[str, ...] = ()


def topology(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help=_FILES)] = None,
    output: Annotated[
        Literal["tree", "json", "yaml", "dot", "svg", "graphml"], typer.Option("-o", "--output")
    ] = "tree",
    job: Annotated[str, typer.Option(metavar="JOB", help=_JOB)] = "",
    namespace: Namespace = "",
    context: Context = "",
) -> None:
    """Show the network, and a job on it.

    Levels, rails, conflicts and faults are those of the files, or without files those of the
    cluster, by the labels of its nodes and the site's topology files. The name of a file
    determines its format. For a file of another name, use topology.conf=FILE.
    """
    view = _of_files(files, job) if files else _of_the_cluster(job, namespace, context)
    with shown_progress("drawing the network"):
        print_all = _prepare(view, output)
    print_all()


def _prepare(view: View, output: str) -> Callable[[], None]:
    """Compute what is printed. Returns what prints it."""
    if output == "tree":
        return partial(show, *_lines(view))
    if output in ("json", "yaml"):
        return partial(show_document, _json(view), output)
    if output == "dot":
        return partial(typer.echo, _dot(graphs.of(view.fabric)))
    if output == "svg":
        return partial(typer.echo, Picture(view.fabric, view.gang).draw())
    return partial(typer.echo, "\n".join(nx.generate_graphml(graphs.of(view.fabric))))


def _of_files(given: list[str], job: str) -> View:
    with counted_progress("reading files", given) as files:
        sources = [each for file in map(_file, files) for each in formats.read(file)]
    source_reports = (each.source_report if isinstance(each, Network) else each for each in sources)
    nodes = frozenset().union(*(source_report.nodes for source_report in source_reports))
    its = gang.read(Path(job)) if job else NO_JOB
    # A host that files call by its first name is the job's node of that name.
    named = {node.partition(".")[0]: node for node in its.nodes}
    every = {named.get(node, node) for node in nodes} | {*its.nodes}
    found = _merge(every, sources)
    return View(found, slow=tuple(tree.describe_slow_devices(found)), gang=its)


def _merge(nodes: Collection[str], sources: Sequence[Facts]) -> Fabric:
    with shown_progress("merging sources"):
        return fabric.of(nodes, sources)


def _file(given: str) -> File:
    name, sign, path = given.partition("=")
    if not sign or name.removesuffix(".gz") not in formats.READERS:
        name, path = "", given
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    place = "" if name else str(Path(path).parent)
    return File("" if place == "." else place, name or Path(path).name, content)


def _of_the_cluster(job: str, namespace: str, context: str) -> View:
    its = reference(job, namespace, context) if job else None
    server = its.server if its else ApiServer(context, namespace)
    nodes, stored = cluster.nodes(server), cluster.fabric(server)
    levels = tuple((stored.get("spec") or {}).get("levels") or ())
    labelled = {name: its.metadata.labels for name, its in nodes.items() if not its.is_reserved}
    sources: list[Facts] = list(labels.source_reports(labelled, levels))
    problems = []
    with counted_progress("reading files", [*cluster.files(server)]) as files:
        for file in files:
            try:
                sources += formats.read(file)
            except WiringError as error:
                problems.append(str(error))
    placed = cluster.placed(server, its.namespace, its.name) if its else NO_JOB
    found, status = _merge(nodes.keys(), sources), stored.get("status") or {}
    # The controllers have the files too, and what agents report besides.
    slow = _slow(status) or tree.describe_slow_devices(found)
    reported = (*slow, *_published(status))
    return View(found, tuple(problems), reported, placed, tuple(_sources(status)))


def _published(status: Mapping[str, Any]) -> Iterator[str]:
    """What the Fabric's status has beside, in one sentence: agents report most of it."""
    miscabled = len((status.get("rails") or {}).get("miscabled") or ())
    counts = (
        (status.get("problemCount") or 0, "problem"),
        (status.get("conflictCount") or 0, "conflict"),
        (miscabled, "miscabled rail"),
    )
    if found := [count(number, thing) for number, thing in counts if number]:
        yield f"the Fabric has {', '.join(found)}: kubectl describe fabric default"


def _slow(status: Mapping[str, Any]) -> list[str]:
    """Slow devices in the Fabric's status; only agents measure some of them."""
    found = [f"{each['node']}: {each['message']}" for each in status.get("slow") or ()]
    if found and len(found) < (number := status.get("slowCount") or 0):
        found.append(f"{number} devices are slow: these are the slowest")
    return found


def _sources(status: Mapping[str, Any]) -> Iterator[str]:
    for each in status.get("sources") or ():
        since = f" {each['time']}" if each.get("time") else ""
        nodes = count(each["nodes"], "node")
        yield f"{each['source']}: {nodes}, {each['provenance'].lower()}{since}"
    if agents := status.get("agents"):
        silent = f", {agents['silent']:,} of them silent" if agents.get("silent") else ""
        yield f"agents: {count(agents['nodes'], 'node')}{silent}"


def _lines(view: View) -> Iterator[RenderableType]:
    yield from tree.summary(view.fabric)
    yield ""
    yield tree.domains(view.fabric, view.gang)
    if view.sources:
        yield from ("", "sources", *(f"  {each}" for each in view.sources))
    if about := [f"job {view.gang.name}: {line}" for line in view.gang.describe()]:
        yield from ("", *about)
    findings = [*_findings(view)]
    yield ""
    yield count(len(findings), "finding") if findings else "no findings"
    yield from (f"- {each}" for each in findings)


def _findings(view: View) -> Iterator[str]:
    yield from (f"not read: {problem}" for problem in view.problems)
    yield from view.slow
    yield from tree.findings(view.fabric)
    if view.gang.name and not view.gang.nodes:
        yield f"job {view.gang.name} has no nodes now"


def _json(view: View) -> dict[str, Any]:
    found = view.fabric
    scale_up = found.merged_topology.scale_up_domains
    return {
        "levels": found.levels,
        "nodes": dict(found.places),
        "scaleUpDomains": dict(scale_up.domains) if scale_up else {},
        "rails": dict(found.rails),
        "sources": [source_report.source for source_report in found.source_reports],
        "networks": [
            {"source": network.wiring.source, "hosts": network.hosts, "rails": network.rails}
            for network in found.networks
        ],
        "hardware": [_hardware(found, *kind) for kind in outline.kinds(found.inventories)],
        "benchmarks": dict(found.benchmarks),
        "relativeSpeeds": dict(found.relative_speeds),
        "findings": [*_findings(view)],
        "graph": nx.node_link_data(graphs.of(found), edges="edges"),
    }


def _hardware(found: Fabric, description: str, nodes: list[str]) -> dict[str, object]:
    """The parts of the first of nodes that have the same description."""
    its = found.inventories[nodes[0]]
    return {
        "nodes": nodes,
        "is": description,
        "accelerators": its.accelerators,
        "adapters": [
            dataclasses.asdict(part) | dataclasses.asdict(its.placed[part.id])
            for part in its.adapters
        ],
        "links": its.links,
        "distances": [[*both, near.name] for both, near in sorted(its.distances.items())],
        "sources": [[*fact, source] for fact, source in its.sources.items()],
    }


def _dot(graph: nx.Graph) -> str:
    """Graphviz: one row for each tier, the outermost at the top."""
    rows = group((tier, _quoted(name)) for name, tier in sorted(graph.nodes(data="tier")))
    lines = ["graph fabric {", "  rankdir=BT; ranksep=2; node [shape=box];"]
    lines += [f"  {{ rank=same; {'; '.join(row)} }}" for _, row in sorted(rows.items())]
    for one, other, label in sorted(graph.edges(data="speed", default="")):
        lines.append(f"  {_quoted(one)} -- {_quoted(other)} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
