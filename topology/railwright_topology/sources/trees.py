"""Switches above switches and nodes below them -> the domain of every node at each tier.

A tier is counted from the nodes outwards: a switch is one tier above the highest of those below it.
Where one branch is shorter than another, its outermost switch so far is its domain at the tiers
that it lacks, so that every domain lies in one of the next tier.

What contradicts itself is left out, and nothing else: a node below two switches has no place, and a
switch below two others has nothing above it, so its nodes have no domain at those tiers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

from railwright_topology.grouping import group
from railwright_topology.sources import hostlist
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

NAMES_MAX = 1 << 16
TIERS_MAX = 6

_PLACEHOLDER = re.compile(r"no-topology|unknown|.+\.unknown|slurm-root-[0-9a-f]+")
"""Names of switches and blocks that stand for none: Topograph, Soperator (one for each fabric) and
slurm-gcp (a block) put nodes there whose place they do not know."""

_BELOW_ALL = ""
"""What stands for the nodes in the graph of switches."""

_Parents = dict[str, str | None]
"""The switch above each that is below another; None where that is not known."""


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A switch, the line it is described in, and the names of what is directly below it."""

    line: int
    name: str
    children: Sequence[str] = ()
    nodes: Sequence[str] = ()


@dataclass(slots=True)
class _Memberships:
    """Which one each name is directly below; ``further`` are the lines that have it elsewhere."""

    kind: str
    omissions: Omissions
    found: dict[str, str] = field(default_factory=dict)
    further: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def add(self, above: TreeNode, names: Iterable[str]) -> None:
        for name in names:
            if not hostlist.is_name(name):
                self.omissions.note(above.line, _name_rule(name))
            elif self.found.setdefault(name, above.name) != above.name:
                self.further.setdefault(name, []).append((above.line, above.name))
        if len(self.found) > NAMES_MAX:
            rule = f"is past {NAMES_MAX} names of a {self.kind}: too many"
            raise WiringError(self.omissions.source, above.line, rule)

    def certain(self, parents: _Parents) -> dict[str, str]:
        """Without those below two. One that a switch and those above it have is below the lowest of
        them: Slurm itself prints all nodes of a switch at each."""
        certain = dict(self.found)
        for name, further in self.further.items():
            candidates = {self.found[name], *(above for _, above in further)}
            lowest = [each for each in candidates if candidates <= _upwards(each, parents)]
            if len(lowest) == 1:
                certain[name] = lowest[0]
                continue
            del certain[name]
            line, other = further[0]
            rule = f"{self.kind} {name!r} is in both {self.found[name]!r} and {other!r}"
            self.omissions.note(line, f"{rule}: it is left out")
        return certain


def tiers(switches: Iterable[TreeNode], omissions: Omissions) -> tuple[Mapping[str, str], ...]:
    """The domain of each node, the nearest tier first; empty where no node has one."""
    lines: dict[str, int] = {}
    switches_below = _Memberships("switch", omissions)
    nodes_below = _Memberships("node", omissions)
    for switch in _named_switches(switches, omissions):
        lines.setdefault(switch.name, switch.line)
        switches_below.add(switch, switch.children)
        nodes_below.add(switch, switch.nodes)
    above = switches_below.certain({})
    parents: _Parents = {child: above.get(child) for child in switches_below.found}
    for child in [child for child in parents if child not in lines]:
        upper = switches_below.found[child]
        if not is_placeholder(child):
            omissions.note(lines[upper], f"{child!r} is below {upper!r}, and described nowhere")
        del parents[child]
    leaves = _without_phony(nodes_below.certain(parents), lines, parents, omissions)
    heights = _heights(dict.fromkeys(leaves.values()), lines, parents, omissions)
    if (deepest := max(heights.values())) >= TIERS_MAX:
        outermost = min(name for name, height in heights.items() if height == TIERS_MAX)
        rule = f"has {deepest + 1} tiers: those from {outermost!r} outwards are left out"
        omissions.note(lines[outermost], rule)
    return tuple(_domains(leaves, parents, heights))


def members(groups: Iterable[TreeNode], omissions: Omissions) -> dict[str, str]:
    """Which group each node is in, where groups lie in nothing."""
    found = _Memberships("node", omissions)
    for each in _named_switches(groups, omissions):
        found.add(each, each.nodes)
    return found.certain({})


def is_placeholder(name: str) -> bool:
    """Whether a tool puts nodes of unknown place on a switch or in a block of this name."""
    return _PLACEHOLDER.fullmatch(name) is not None


def expand(value: Value, what: str = "a host list") -> list[str]:
    """The names that a text is a host list of. Raises WiringError where it is none."""
    return names(value.omissions.source, value.line, value.text(what))


def names(source: str, line: int, text: str) -> list[str]:
    """The names of a host list in this line. Raises WiringError where it is none."""
    try:
        found = hostlist.expand(text, NAMES_MAX)
    except hostlist.HostlistError as refused:
        raise WiringError(source, line, str(refused)) from None
    if not found:
        raise WiringError(source, line, f"{text[:80]!r} has no names")
    return found


def _named_switches(switches: Iterable[TreeNode], omissions: Omissions) -> Iterator[TreeNode]:
    """Those with a name of their own. Topograph describes a switch with switches and nodes below it
    in two lines."""
    described: dict[str, set[str]] = {}
    for switch in switches:
        kinds = {kind for kind in ("children", "nodes") if getattr(switch, kind)}
        if not hostlist.is_name(switch.name):
            omissions.note(switch.line, _name_rule(switch.name))
        elif is_placeholder(switch.name):
            _note_placeholder(switch, omissions)
        elif switch.name in described and (not kinds or kinds & described[switch.name]):
            omissions.note(
                switch.line, f"{switch.name[:80]!r} is described twice: the first counts"
            )
        else:
            described.setdefault(switch.name, set()).update(kinds)
            yield switch


def _name_rule(name: str) -> str:
    return f"{name[:80]!r}: a name has 1 to {hostlist.NAME_MAX} printable characters"


def _note_placeholder(switch: TreeNode, omissions: Omissions) -> None:
    if switch.nodes:
        count = f"{len(switch.nodes)}, the first is {switch.nodes[0][:80]}"
        rule = f"{switch.name!r} is a placeholder: nodes of unknown place: {count}"
        omissions.note(switch.line, rule)


def _without_phony(
    leaves: Mapping[str, str], lines: Mapping[str, int], parents: _Parents, omissions: Omissions
) -> dict[str, str]:
    """slurm-gcp puts the nodes of a node set whose host it does not know on a switch of the set."""
    below = group((leaf, node) for node, leaf in leaves.items())
    phony = {leaf for leaf in below if leaf.startswith("ns_") and parents.get(leaf) == "slurm-root"}
    for name, nodes in below.items():
        if name in phony:
            _note_placeholder(TreeNode(lines[name], name, nodes=nodes), omissions)
    return {node: leaf for node, leaf in leaves.items() if leaf not in phony}


def _upwards(name: str, parents: _Parents) -> set[str]:
    """A switch and all above it."""
    found: set[str] = set()
    at: str | None = name
    while at is not None and at not in found:
        found.add(at)
        at = parents.get(at)
    return found


def _heights(
    leaves: Iterable[str], lines: Mapping[str, int], parents: _Parents, omissions: Omissions
) -> dict[str, int]:
    """How many tiers each switch is above nodes. Cuts the cycles among parents."""
    graph = nx.DiGraph((below, above) for below, above in parents.items() if above)
    graph.add_node(_BELOW_ALL)
    graph.add_edges_from((_BELOW_ALL, leaf) for leaf in leaves)
    graph = graph.subgraph({_BELOW_ALL, *nx.descendants(graph, _BELOW_ALL)}).copy()
    # No two cycles share a switch, as each has one above it.
    for cycle in [*map(sorted, nx.simple_cycles(graph))]:
        omissions.note(lines[cycle[0]], f"{cycle[0]!r} is above itself")
        parents.update(dict.fromkeys(cycle))
        graph.remove_edges_from([*graph.out_edges(cycle)])
    generations = enumerate(nx.topological_generations(graph), -1)
    return {name: height for height, names in generations for name in names}


def _domains(
    leaves: Mapping[str, str], parents: _Parents, heights: Mapping[str, int]
) -> Iterator[Mapping[str, str]]:
    # The outermost switch so far above each leaf; None beyond the last one that is known.
    outermost: dict[str, str | None] = {leaf: leaf for leaf in leaves.values()}
    for tier in range(min(max(heights.values()) + 1, TIERS_MAX)):
        for leaf, at in outermost.items():
            if at is not None and at in parents and heights[at] < tier:
                above = parents[at]
                if above is None or heights[above] <= tier:
                    outermost[leaf] = above
        yield {
            node: at
            for node, leaf in sorted(leaves.items())
            if (at := outermost[leaf]) is not None and heights[at] <= tier
        }
