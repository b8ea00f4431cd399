"""One network told in every form that is read: labels of each family, and files of each format.

The network is uneven on purpose: racks of 3 to 9 nodes, rows of 2 to 5 racks. Names are scrambled,
so that their order tells nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from railwright_topology.fabric import Facts
from railwright_topology.sources import formats, labels
from railwright_topology.sources.formats import File

OCI = "oci.oraclecloud.com/"
NVIDIA = "network.topology.nvidia.com/"
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "railwright": labels.OWN_LEVELS,
    "configured": ("example.com/hall", "example.com/row", "example.com/shelf"),
    "topograph": tuple(f"fabric.topograph.run/tier-{tier}" for tier in (2, 1, 0)),
    "topograph before 1.0": tuple(NVIDIA + name for name in ("core", "spine", "leaf")),
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
    "gcp": tuple(f"cloud.google.com/gce-topology-{name}" for name in ("block", "subblock")),
    "oci rdma": tuple(
        f"{OCI}rdma.{name}_id" for name in ("hpc_island", "network_block", "local_block")
    ),
    "oci host": tuple(f"{OCI}host.{name}_id" for name in ("network_block", "rack")),
    "cloud.provider.com": tuple(
        f"cloud.provider.com/topology-{name}" for name in ("block", "rack")
    ),
}
"""Keys of each family of labels, the coarsest first."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """``paths`` gives each node its domains, the coarsest first, each name once in the site."""

    paths: Mapping[str, Path]

    def up_to(self, depth: int) -> Site:
        """The same without the coarsest tiers, so that so many are left."""
        return Site({node: path[-depth:] for node, path in self.paths.items()})

    @property
    def groups(self) -> list[set[frozenset[str]]]:
        """Who stands together, tier by tier, the coarsest first."""
        return groups(self.paths)


def groups(paths: Mapping[str, Path]) -> list[set[frozenset[str]]]:
    """Who stands together, tier by tier, the coarsest first."""
    depth = max(map(len, paths.values()), default=0)
    found = []
    for tier in range(depth):
        members: dict[Path, set[str]] = {}
        for node, path in paths.items():
            members.setdefault(path[: tier + 1], set()).add(node)
        found.append(set(map(frozenset, members.values())))
    return found


def planted(random: Random, *, halls: int = 3) -> Site:
    """A site of three tiers."""
    shape = [
        [random.randint(3, 9) for _ in range(random.randint(2, 5))]
        for _ in range(halls)
        for _ in range(random.randint(2, 4))
    ]
    numbers = random.sample(range(10_000), sum(map(sum, shape)) + 3 * sum(map(len, shape)))
    names = (f"x{number:04d}" for number in numbers)
    above = [next(names) for _ in range(halls)]
    paths: dict[str, Path] = {}
    for at, row in enumerate(shape):
        hall, its = above[at * halls // len(shape)], next(names)
        for size in row:
            rack = next(names)
            paths |= {f"n{next(names)}": (hall, its, rack) for _ in range(size)}
    nodes = random.sample(sorted(paths), len(paths))
    return Site({node: paths[node] for node in nodes})


def read_sources(site: Site) -> Iterator[tuple[str, Site, list[Facts]]]:
    """Each source by its name, what it can tell of the site, and what is read of it."""
    for family, keys in FAMILIES.items():
        part = site.up_to(len(keys))
        nodes = {node: dict(zip(keys, path, strict=True)) for node, path in part.paths.items()}
        read = labels.source_reports(nodes, keys if family == "configured" else ())
        yield f"{family} labels", part, list(read)
    racks = site.up_to(1)
    for name, part, text in (
        ("topology.conf", site, conf(site)),
        ("topology.yaml", site, yaml(site)),
        ("topograph.yaml", site, model(site)),
        ("topograph.json", site, graph(site)),
        ("plan.yaml", site, plan_of(site)),
        ("topology.conf", racks, blocks(racks)),
    ):
        called = name if part is site else f"{name} of blocks"
        yield called, part, list(formats.read(File("", name, text)))


def _above(site: Site) -> dict[str, str]:
    """Who is directly above each switch."""
    return {
        lower: upper for path in site.paths.values() for upper, lower in itertools.pairwise(path)
    }


def _below(site: Site) -> dict[str, list[str]]:
    below: dict[str, list[str]] = {}
    for lower, upper in _above(site).items():
        below.setdefault(upper, []).append(lower)
    return below


def _racks(site: Site) -> dict[str, list[str]]:
    racks: dict[str, list[str]] = {}
    for node, path in site.paths.items():
        racks.setdefault(path[-1], []).append(node)
    return racks


def conf(site: Site) -> str:
    """Slurm's tree, a line a switch."""
    lines = [f"SwitchName={name} Switches={','.join(its)}" for name, its in _below(site).items()]
    lines += [f"SwitchName={name} Nodes={','.join(its)}" for name, its in _racks(site).items()]
    return "\n".join(lines)


def blocks(site: Site) -> str:
    """Slurm's blocks."""
    return "\n".join(
        f"BlockName={name} Nodes={','.join(its)}" for name, its in _racks(site).items()
    )


def yaml(site: Site) -> str:
    """Slurm's tree as YAML."""
    switches = [{"switch": name, "children": ",".join(its)} for name, its in _below(site).items()]
    switches += [{"switch": name, "nodes": ",".join(its)} for name, its in _racks(site).items()]
    return json.dumps([{"topology": "t", "tree": {"switches": switches}}])


def model(site: Site) -> str:
    """Topograph's model of 1.0."""
    racks = _racks(site)
    switches = {name: {"switches": its} for name, its in _below(site).items()}
    switches |= {name: {} for name in racks}
    blocks = [{"switch": name, "nodes": its} for name, its in racks.items()]
    return json.dumps({"switches": switches, "blocks": blocks})


def graph(site: Site) -> str:
    """What Topograph's graph engine answers."""
    return json.dumps(
        {
            "instances": [
                {"id": node, "network_layers": path[::-1]} for node, path in site.paths.items()
            ]
        }
    )


def plan_of(site: Site) -> str:
    """A plan of the site."""
    domains: dict[str, dict[str, dict[str, str]]] = {}
    for (hall, row, rack), its in ((site.paths[its[0]], its) for its in _racks(site).values()):
        domains.setdefault(hall, {}).setdefault(row, {})[rack] = ",".join(its)
    return json.dumps({"version": 1, "tiers": ["hall", "row", "rack"], "domains": domains})
