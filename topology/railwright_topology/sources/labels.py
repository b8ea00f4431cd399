"""Read topology labels of nodes: one source report for each family of labels on any node.

Families count tiers in either direction; the table lists them coarsest first. A node without a
label is left out at that tier, with a remark on how many are. Label values are opaque names.

A domain's name is its whole path, so that domains nest. The rack of a node without block label is
in no block; if other nodes have a rack of that name in a block, the node is left out, as its rack
is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import trees

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """``levels`` are label keys, the coarsest first; of the keys of one level the first that a node
    carries counts. ``machine`` names the host itself: a tier only where some nodes share one.

    ``within`` divides scale-up domains further; it is reported and not read.
    """

    name: str
    levels: tuple[tuple[str, ...], ...] = ()
    machine: str = ""
    scale_up: str = ""
    within: str = ""
    provenance: Provenance = Provenance.IMPORTED


def _keys(prefix: str, *names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((prefix + name,) for name in names)


OWN_LEVELS = ("railwright.dev/block", "railwright.dev/rack")
"""Labels of our own, for administrators to set, the coarsest first."""

_NVIDIA = "network.topology.nvidia.com/"
_OCI = "oci.oraclecloud.com/"
_NVIDIA_SCALE_UP = "accelerated.topology.nvidia.com/"

NUMBERED: Mapping[str, Family] = {
    "fabric.topograph.run/tier-": Family(
        "topograph",
        scale_up="accelerator.topograph.run/domain",
        within="accelerator.topograph.run/sub-domain",
    ),
    # Versions on the way to 1.0.
    f"{_NVIDIA}tier-": Family("topograph tier", scale_up=f"{_NVIDIA_SCALE_UP}domain-0"),
    f"{_NVIDIA}level-": Family("topograph level", scale_up=f"{_NVIDIA_SCALE_UP}level-0"),
}
"""Their levels are the key with as many numbers as there are, 0 the nearest."""

_NUMBERED_KEY = re.compile(rf"({'|'.join(map(re.escape, NUMBERED))})(0|[1-9][0-9]{{0,3}})")

FAMILIES = (
    Family("railwright", _keys("", *OWN_LEVELS), provenance=Provenance.DECLARED),
    # To 0.1 block and datacenter, then leaf and core until 1.0.
    Family(
        "topograph before 1.0",
        (
            (_NVIDIA + "core", _NVIDIA + "datacenter"),
            (_NVIDIA + "spine",),
            (_NVIDIA + "leaf", _NVIDIA + "block"),
        ),
        scale_up=_NVIDIA + "accelerator",
    ),
    Family("topograph xclr", scale_up="xclr.topology.nvidia.com/domain"),
    Family("gpu.clique", scale_up="nvidia.com/gpu.clique"),
    Family(
        "aws",
        _keys("topology.k8s.aws/network-node-layer-", "1", "2", "3", "4"),
        scale_up="topology.k8s.aws/ultraserver-id",
    ),
    Family(
        "gcp",
        _keys("cloud.google.com/gce-topology-", "block", "subblock"),
        machine="cloud.google.com/gce-topology-host",
    ),
    Family(
        "oci rdma",
        _keys(_OCI + "rdma.", "hpc_island_id", "network_block_id", "local_block_id"),
        machine=_OCI + "rdma.host_id",
        scale_up=_OCI + "host.gpu_memory_fabric_id",
    ),
    Family("oci host", _keys(_OCI + "host.", "network_block_id", "rack_id")),
    Family("cloud.provider.com", _keys("cloud.provider.com/topology-", "block", "rack")),
)

_KEYS = frozenset(
    key
    for family in (*NUMBERED.values(), *FAMILIES)
    for level in (*family.levels, (family.machine, family.scale_up, family.within))
    for key in level
    if key
)

_NO_CLUSTER = re.compile(r"[0-]*\.[0-9]+")
"""A clique without cluster id: GPUs without NVLink beyond their node."""


def read_of(labels: Labels, configured: Sequence[str] = ()) -> dict[str, str]:
    """The topology labels among a node's labels."""
    return {
        key: value
        for key, value in labels.items()
        if key in _KEYS or key in configured or _NUMBERED_KEY.fullmatch(key)
    }


def source_reports(
    nodes: Mapping[str, Labels], configured: Sequence[str] = ()
) -> tuple[SourceReport, ...]:
    """``configured`` are label keys of the site's own choice, the coarsest first."""
    own = _keys("", *configured)
    families = [*FAMILIES, *_numbered(nodes)]
    if own and own not in [family.levels for family in families]:
        families.insert(0, Family("configured", own, provenance=Provenance.DECLARED))
    carried = {key for labels in nodes.values() for key, value in labels.items() if value}
    with_levels = ((family, _levels(nodes, family, carried)) for family in families)
    return tuple(
        _source_report(nodes, family, levels)
        for family, levels in with_levels
        if levels or family.scale_up in carried
    )


def _levels(
    nodes: Mapping[str, Labels], family: Family, carried: Set[str]
) -> list[tuple[str, ...]]:
    """Those that a node carries."""
    levels = [level for level in family.levels if not carried.isdisjoint(level)]
    if family.machine and _shared(nodes, family.machine):
        levels.append((family.machine,))
    return levels


def _source_report(
    nodes: Mapping[str, Labels], family: Family, levels: Sequence[tuple[str, ...]]
) -> SourceReport:
    remarks = _Remarks(len(nodes))
    tiers, scale_up = _tiers(nodes, levels, remarks), _scale_up(nodes, family, remarks)
    names = tuple(" or ".join(level) for level in reversed(levels))
    sentences = tuple(remarks.sentences)
    source = f"{family.name} labels"
    return SourceReport(source, family.provenance, tiers, scale_up, sentences, names)


@dataclass(slots=True)
class _Remarks:
    """Sentences about some of all nodes."""

    of: int
    sentences: list[str] = field(default_factory=list)

    def add(self, what: str, nodes: Sequence[str]) -> None:
        if nodes:
            count = f"{len(nodes)} of {self.of} nodes"
            self.sentences.append(f"{what}: {count}, the first is {nodes[0]}")


def _numbered(nodes: Mapping[str, Labels]) -> Iterator[Family]:
    numbers: dict[str, list[int]] = {prefix: [] for prefix in NUMBERED}
    for key in sorted({key for labels in nodes.values() for key in labels}):
        if found := _NUMBERED_KEY.fullmatch(key):
            numbers[found[1]].append(int(found[2]))
    for prefix, family in NUMBERED.items():
        outermost_first = sorted(sorted(numbers[prefix])[: trees.TIERS_MAX], reverse=True)
        yield replace(family, levels=_keys(prefix, *map(str, outermost_first)))


def _shared(nodes: Mapping[str, Labels], key: str) -> bool:
    values = [labels[key] for labels in nodes.values() if labels.get(key)]
    return len({*values}) < len(values)


def _tiers(
    nodes: Mapping[str, Labels], levels: Sequence[tuple[str, ...]], remarks: _Remarks
) -> tuple[Mapping[str, str], ...]:
    """The domain of each node, the nearest tier first."""
    paths: dict[str, tuple[str, ...]] = {node: () for node in sorted(nodes)}
    tiers: list[Mapping[str, str]] = []
    for level in levels:
        keys = " or ".join(level)
        values = {node: _values(nodes[node], level) for node in paths}
        paths = {node: (*path, *(values[node] or [""])[:1]) for node, path in paths.items()}
        tiers.insert(0, _tier(paths))
        lacking = [node for node in paths if not values[node]]
        remarks.add(f"no {keys}", lacking)
        twofold = [node for node in paths if len(values[node]) > 1]
        remarks.add(f"{keys} with two values, of which the first counts", twofold)
        vague = [node for node in paths if values[node] and node not in tiers[0]]
        remarks.add(f"{keys} that others have too, and not all that is above it", vague)
    return tuple(tiers)


def _tier(paths: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    """The domain of each node that is known; one of an incomplete path is not, where another has
    its name."""
    certain = {path[-1] for path in paths.values() if all(path)}
    return {
        node: "/".join(path)
        for node, path in paths.items()
        if path[-1] and (all(path) or path[-1] not in certain)
    }


def _scale_up(nodes: Mapping[str, Labels], family: Family, remarks: _Remarks) -> Mapping[str, str]:
    values = {node: nodes[node].get(family.scale_up) or "" for node in sorted(nodes)}
    if not any(values.values()):
        return {}
    nowhere = [node for node, value in values.items() if _NO_CLUSTER.fullmatch(value)]
    within = [node for node in values if nodes[node].get(family.within)]
    remarks.add(f"no {family.scale_up}", [node for node, value in values.items() if not value])
    remarks.add(f"{family.scale_up} of no cluster", nowhere)
    remarks.add(f"{family.within} is not read: scale-up domains are not divided further", within)
    return {
        node: value for node, value in values.items() if value and not _NO_CLUSTER.fullmatch(value)
    }


def _values(labels: Labels, level: tuple[str, ...]) -> list[str]:
    """What a node carries of a level, each once, in the order of the keys."""
    values = (labels[key] for key in level if labels.get(key))
    return [value for value in dict.fromkeys(values) if not trees.is_placeholder(value)]
