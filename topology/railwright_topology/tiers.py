"""The tree view of a fabric: which domain of each level a node stands in.

Levels are node label keys, the coarsest first (block, rack). Directions differ between families
of labels, so the order is the Fabric's to say, never guessed from the keys. A domain is known
by its whole path: rack r1 of block b1 is not rack r1 of block b2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

DEFAULT_LEVELS = ("railwright.dev/block", "railwright.dev/rack")

UNKNOWN = ""


def path(labels: Mapping[str, str], levels: Sequence[str]) -> tuple[str, ...]:
    """The node's domain at each level; UNKNOWN where it carries no such label."""
    return tuple(labels.get(level, UNKNOWN) for level in levels)


def present(levels: Iterable[str], nodes: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """The levels that some node carries a label of. One that none carries tells nobody apart, and
    would make strangers of two nodes in one rack where nobody labels blocks."""
    found = tuple(nodes)
    return tuple(level for level in levels if any(level in labels for labels in found))


def census(paths: Iterable[Sequence[str]], levels: Sequence[str]) -> tuple[int, ...]:
    """How many known domains each level has; a node without the label stands in none."""
    domains: list[set[tuple[str, ...]]] = [set() for _ in levels]
    for steps in paths:
        for depth in range(len(levels)):
            if steps[depth] != UNKNOWN:
                domains[depth].add(tuple(steps[: depth + 1]))
    return tuple(len(found) for found in domains)
