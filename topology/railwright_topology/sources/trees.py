"""Switches above switches and nodes below them -> the domain of every node at each tier.

A tier is counted from the nodes outwards: a switch is one tier above the highest of those below it.
Where one branch is shorter than another, its outermost switch so far stands for it at the tiers
that it lacks, so that every domain lies in one of the next tier.

What contradicts itself is left out, and nothing else: a node below two switches has no place, and a
switch below two others has nothing above it, so its nodes have no domain at those tiers.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from railwright_topology.sources import hostlist
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

NAMES_MAX = 1 << 16
TIERS_MAX = 6

_PLACEHOLDER = re.compile(r"no-topology|unknown|.+\.unknown|slurm-root-[0-9a-f]+")
"""Names of switches and blocks that stand for none: Topograph, Soperator (one for each fabric) and
slurm-gcp (a block) put nodes there whose place they do not know."""


@dataclass(frozen=True, slots=True)
class Switch:
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

    def add(self, above: Switch, names: Iterable[str]) -> None:
        for name in names:
            if not _is_name(name):
                self.omissions.note(above.line, _name_rule(name))
            elif self.found.setdefault(name, above.name) != above.name:
                self.further.setdefault(name, []).append((above.line, above.name))
        if len(self.found) > NAMES_MAX:
            rule = f"is past {NAMES_MAX} names of a {self.kind}: too many"
            raise WiringError(self.omissions.source, above.line, rule)

    def sure(self, parents: Mapping[str, str | None]) -> dict[str, str]:
        """Without those below two. One that a switch and those above it have is below the lowest of
        them: Slurm itself prints all nodes of a switch at each."""
        sure = dict(self.found)
        for name, further in self.further.items():
            candidates = {self.found[name], *(above for _, above in further)}
            lowest = [each for each in candidates if candidates <= _upwards(each, parents)]
            if len(lowest) == 1:
                sure[name] = lowest[0]
                continue
            del sure[name]
            line, other = further[0]
            rule = f"{self.kind} {name!r} is in both {self.found[name]!r} and {other!r}"
            self.omissions.note(line, f"{rule}: it is left out")
        return sure


def tiers(switches: Iterable[Switch], omissions: Omissions) -> tuple[Mapping[str, str], ...]:
    """The domain of each node, the nearest tier first; empty where no node has one."""
    lines: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    switches_below = _Memberships("switch", omissions)
    nodes_below = _Memberships("node", omissions)
    for switch in switches:
        if not _is_name(switch.name):
            omissions.note(switch.line, _name_rule(switch.name))
            continue
        if is_placeholder(switch.name):
            _note_placeholder(switch, omissions)
            continue
        its = {kind for kind, below in (("c", switch.children), ("n", switch.nodes)) if below}
        # Topograph describes a switch with both in two lines.
        if switch.name in lines and (not its or its & kinds[switch.name]):
            omissions.note(switch.line, _twice_rule(switch.name))
            continue
        lines.setdefault(switch.name, switch.line)
        kinds.setdefault(switch.name, set()).update(its)
        switches_below.add(switch, switch.children)
        nodes_below.add(switch, switch.nodes)
    above = switches_below.sure({})
    parents: dict[str, str | None] = {
        child: above.get(child) for child in switches_below.found if child in lines
    }
    for child, upper in switches_below.found.items():
        if child not in lines and not is_placeholder(child):
            omissions.note(lines[upper], f"{child!r} is below {upper!r}, and described nowhere")
    leaves = _without_phony(nodes_below.sure(parents), lines, parents, omissions)
    heights = _heights(sorted({*leaves.values()}), lines, parents, omissions)
    if (deepest := max(heights.values(), default=0)) >= TIERS_MAX:
        outermost = min(name for name, height in heights.items() if height == TIERS_MAX)
        rule = f"has {deepest + 1} tiers: those from {outermost!r} outwards are left out"
        omissions.note(lines[outermost], rule)
    return tuple(_domains(leaves, parents, heights))


def members(groups: Iterable[Switch], omissions: Omissions) -> dict[str, str]:
    """Which group each node is in, where groups lie in nothing."""
    found = _Memberships("node", omissions)
    described: set[str] = set()
    for group in groups:
        if not _is_name(group.name):
            omissions.note(group.line, _name_rule(group.name))
            continue
        if group.name in described:
            omissions.note(group.line, _twice_rule(group.name))
            continue
        described.add(group.name)
        if is_placeholder(group.name):
            _note_placeholder(group, omissions)
            continue
        found.add(group, group.nodes)
    return found.sure({})


def is_placeholder(name: str) -> bool:
    """Whether a tool puts nodes of unknown place on a switch or in a block of this name."""
    return _PLACEHOLDER.fullmatch(name) is not None


def names(source: str, line: int, text: str) -> list[str]:
    """What a host list in this line stands for. Raises WiringError where it is none."""
    try:
        found = hostlist.expand(text, NAMES_MAX)
    except hostlist.HostlistError as refused:
        raise WiringError(source, line, str(refused)) from None
    if not found:
        raise WiringError(source, line, f"{text[:80]!r} names nobody")
    return found


def _is_name(name: str) -> bool:
    return 0 < len(name) <= hostlist.NAME_MAX and name.isprintable()


def _name_rule(name: str) -> str:
    return f"{name[:80]!r}: a name has 1 to {hostlist.NAME_MAX} printable characters"


def _twice_rule(name: str) -> str:
    return f"{name[:80]!r} is described twice: the first counts"


def _without_phony(
    leaves: Mapping[str, str],
    lines: Mapping[str, int],
    parents: Mapping[str, str | None],
    omissions: Omissions,
) -> dict[str, str]:
    """slurm-gcp puts the nodes of a node set whose host it does not know on a switch of the set."""
    found: dict[str, str] = {}
    phony: dict[str, list[str]] = {}
    for node, leaf in leaves.items():
        if leaf.startswith("ns_") and parents.get(leaf) == "slurm-root":
            phony.setdefault(leaf, []).append(node)
        else:
            found[node] = leaf
    for name, nodes in phony.items():
        _note_placeholder(Switch(lines[name], name, nodes=nodes), omissions)
    return found


def _upwards(name: str, parents: Mapping[str, str | None]) -> set[str]:
    """A switch and all above it."""
    found: set[str] = set()
    at: str | None = name
    while at is not None and at not in found:
        found.add(at)
        at = parents.get(at)
    return found


def _note_placeholder(switch: Switch, omissions: Omissions) -> None:
    if switch.nodes:
        count = f"{len(switch.nodes)}, the first is {switch.nodes[0][:80]}"
        rule = f"{switch.name!r} is a placeholder: nodes of unknown place: {count}"
        omissions.note(switch.line, rule)


def _heights(
    leaves: Iterable[str],
    lines: Mapping[str, int],
    parents: dict[str, str | None],
    omissions: Omissions,
) -> dict[str, int]:
    """How many tiers each switch is above nodes. Cuts the cycles among parents."""
    reached: set[str] = set()
    for leaf in leaves:
        path: dict[str, None] = {}
        at: str | None = leaf
        while at is not None and at not in reached and at not in path:
            path[at] = None
            at = parents.get(at)
        if at in path:
            cycle = [*path][[*path].index(at) :]
            omissions.note(lines[min(cycle)], f"{min(cycle)!r} is above itself")
            parents.update(dict.fromkeys(cycle))
        reached.update(path)
    waiting = collections.Counter(above for name in reached if (above := parents.get(name)))
    ready = [name for name in reached if name not in waiting]
    heights = dict.fromkeys(ready, 0)
    for name in ready:
        if above := parents.get(name):
            heights[above] = max(heights.get(above, 0), heights[name] + 1)
            waiting[above] -= 1
            if not waiting[above]:
                ready.append(above)
    return heights


def _domains(
    leaves: Mapping[str, str],
    parents: Mapping[str, str | None],
    heights: Mapping[str, int],
) -> Iterator[Mapping[str, str]]:
    # The outermost switch so far above each leaf; None beyond the last one that is known.
    standing: dict[str, str | None] = {leaf: leaf for leaf in leaves.values()}
    for tier in range(min(max(heights.values(), default=-1) + 1, TIERS_MAX)):
        for leaf, at in standing.items():
            if at is not None and at in parents and heights[at] < tier:
                above = parents[at]
                if above is None or heights[above] <= tier:
                    standing[leaf] = above
        yield {
            node: at
            for node, leaf in sorted(leaves.items())
            if (at := standing[leaf]) is not None and heights[at] <= tier
        }
