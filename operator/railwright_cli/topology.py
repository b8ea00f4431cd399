"""``railwright topology``: the network as sources tell of it, and what they disagree on.

Without files it is that of the cluster: the labels of its nodes, and the files that its operator is
given. A file is known by its name (topology.conf); one of another name is topology.conf=FILE.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx

from railwright_cli import cluster, gang, picture, tree
from railwright_cli.asking import UsageError
from railwright_cli.cluster import Cluster
from railwright_cli.gang import NOBODY, Gang
from railwright_topology import fabric, graphs, outline
from railwright_topology.fabric import Fabric, Told
from railwright_topology.networks import Network
from railwright_topology.sources import formats, labels
from railwright_topology.sources.formats import File
from railwright_topology.wiring import WiringError

REFUSED = (UsageError, WiringError, OSError, UnicodeDecodeError, *cluster.FAILED)


@dataclass(frozen=True, slots=True)
class View:
    """What is shown: the fabric, what could not be read of it, slow devices, a job, and how fresh
    the operator says that its sources are."""

    fabric: Fabric
    problems: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    gang: Gang = NOBODY
    sources: tuple[str, ...] = ()


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "topology",
        help="levels, rails, conflicts and faults of a network",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help=f"one of {', '.join(sorted(formats.READERS))}"
    )
    parser.add_argument("-o", "--output", choices=_FORMATS, default="tree")
    parser.add_argument(
        "--job",
        metavar="NAMESPACE/NAME",
        help="a job of the cluster to show on it; with files, a file that has the job and its "
        "Placement, as kubectl get -o yaml prints them",
    )
    parser.set_defaults(answer=_answer)


def _answer(asked: argparse.Namespace) -> str:
    view = _of_files(asked.files, asked.job) if asked.files else _of_the_cluster(asked.job or "")
    return _FORMATS[asked.output](view)


def _of_files(given: list[str], job: str | None) -> View:
    told = [each for file in map(_file, given) for each in formats.read(file)]
    accounts = (each.account if isinstance(each, Network) else each for each in told)
    nodes = frozenset().union(*(account.nodes for account in accounts))
    its = gang.read(Path(job)) if job else NOBODY
    # A host that files call by its first name is the job's node of that name.
    named = {node.partition(".")[0]: node for node in its.nodes}
    every = {named.get(node, node) for node in nodes} | {*its.nodes}
    known = fabric.of(every, told)
    return View(known, slow=tuple(tree.slow(known)), gang=its)


def _file(given: str) -> File:
    name, sign, path = given.partition("=")
    if not sign or name.removesuffix(".gz") not in formats.READERS:
        name, path = "", given
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    place = "" if name else str(Path(path).parent)
    return File("" if place == "." else place, name or Path(path).name, content)


def _of_the_cluster(job: str) -> View:
    found = Cluster()
    nodes = found.labels()
    said = found.fabric()
    levels = tuple((said.get("spec") or {}).get("levels") or ())
    told: list[Told] = list(labels.accounts(nodes, levels))
    problems = []
    for file in found.files():
        try:
            told += formats.read(file)
        except WiringError as refused:
            problems.append(str(refused))
    namespace, _, name = job.rpartition("/")
    its = found.gang(namespace or "default", name) if job else NOBODY
    known, status = fabric.of(nodes.keys(), told), said.get("status") or {}
    # The operator knows the files too, and besides what agents tell.
    slow = _slow(status) or tree.slow(known)
    return View(known, tuple(problems), tuple(slow), its, tuple(_sources(status)))


def _slow(status: Mapping[str, Any]) -> list[str]:
    """What the operator says of devices that are slow: agents tell it what they measure."""
    told = [f"{each['node']}: {each['message']}" for each in status.get("slow") or ()]
    if told and len(told) < (count := status.get("slowCount") or 0):
        told.append(f"{count} devices are slow: these are the slowest")
    return told


def _sources(status: Mapping[str, Any]) -> Iterator[str]:
    for each in status.get("sources") or ():
        since = f" {each['time']}" if each.get("time") else ""
        nodes = tree.count(each["nodes"], "node")
        yield f"{each['source']}: {nodes}, {each['basis'].lower()}{since}"
    if agents := status.get("agents"):
        silent = f", {agents['silent']:,} of them silent" if agents.get("silent") else ""
        yield f"agents: {tree.count(agents['nodes'], 'node')}{silent}"


def _tree(view: View) -> str:
    about = [f"job {view.gang.name}: {said}" for said in view.gang.about()]
    told = tree.lines(view.fabric, view.gang.ranks)
    sources = ["", "sources", *(f"  {each}" for each in view.sources)] if view.sources else []
    return "\n".join([*told, *sources, *(["", *about] if about else []), *_amiss(view), ""])


def _amiss(view: View) -> list[str]:
    told = [f"not read: {problem}" for problem in view.problems]
    told.extend(view.slow)
    told.extend(tree.conflicts(view.fabric))
    told += [fault for network in view.fabric.networks for fault in network.faults]
    told += [f"{a.source}: {said}" for a in view.fabric.accounts for said in a.strange]
    told.extend(tree.inner_findings(view.fabric))
    if view.gang.name and not view.gang.nodes:
        told.append(f"job {view.gang.name} has no nodes now")
    found = [tree.count(len(told), "finding") if told else "nothing is amiss"]
    return ["", *found, *(f"- {each}" for each in told)]


def _json(view: View) -> str:
    found = view.fabric
    answer = {
        "levels": list(found.levels),
        "nodes": {node: list(place) for node, place in found.places.items()},
        "islands": dict(found.agreement.islands.domains) if found.agreement.islands else {},
        "rails": {node: dataclasses.asdict(rails) for node, rails in found.rails.items()},
        "sources": [account.source for account in found.accounts],
        "networks": [
            {"source": network.wiring.source, "hosts": network.hosts, "rails": network.rails}
            for network in found.networks
        ],
        "insides": [_inside(found, said, nodes) for said, nodes in outline.kinds(found.insides)],
        "rates": {
            node: [dataclasses.asdict(rates) for rates in its] for node, its in found.rates.items()
        },
        "paces": {node: dataclasses.asdict(pace) for node, pace in found.paces.items()},
        "findings": _amiss(view)[2:],
        "graph": nx.node_link_data(graphs.of(found), edges="edges"),
    }
    return json.dumps(answer, indent=1) + "\n"


def _inside(found: Fabric, said: str, nodes: list[str]) -> dict[str, object]:
    """Of nodes that are the same in one line, the parts of the first."""
    its = found.insides[nodes[0]]
    return {
        "nodes": nodes,
        "is": said,
        "accelerators": [dataclasses.asdict(part) for part in its.accelerators],
        "adapters": [
            dataclasses.asdict(part) | dataclasses.asdict(its.placed[part.id])
            for part in its.adapters
        ],
        "links": [dataclasses.asdict(link) for link in its.links],
        "distances": [[*both, near.name] for both, near in sorted(its.distances.items())],
        "sources": [[*fact, source] for fact, source in its.sources.items()],
    }


def _graphml(view: View) -> str:
    return "\n".join(nx.generate_graphml(graphs.of(view.fabric))) + "\n"


def _dot(view: View) -> str:
    """Graphviz: one row for each tier, the outermost at the top."""
    graph = graphs.of(view.fabric)
    rows: dict[int, list[str]] = {}
    for name, tier in sorted(graph.nodes(data="tier")):
        rows.setdefault(tier, []).append(_quoted(name))
    lines = ["graph fabric {", "  rankdir=BT; ranksep=2; node [shape=box];"]
    lines += [f"  {{ rank=same; {'; '.join(row)} }}" for _, row in sorted(rows.items())]
    for one, other, label in sorted(graph.edges(data="speed", default="")):
        lines.append(f"  {_quoted(one)} -- {_quoted(other)} [label={_quoted(label)}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _svg(view: View) -> str:
    return picture.svg(view.fabric, view.gang)


_FORMATS: dict[str, Callable[[View], str]] = {
    "tree": _tree,
    "json": _json,
    "dot": _dot,
    "svg": _svg,
    "graphml": _graphml,
}
