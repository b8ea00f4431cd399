"""A plan of the site that its people declare: how it was meant to be.

    version: 1
    tiers: [block, rack]            # as they lie in each other, the coarsest first
    domains:
      block-a:
        rack-[01-16]: gpu-[001-256] # 16 racks share 256 nodes in their order, 16 each
        rack-17: gpu-[257-264],gpu-300
      block-b:
        rack-[01-16]: gpu-[301-556]
    scaleUpDomains:                 # may be left out: domains of device links (NVLink, XGMI, HCCS)
      nvl-[1-8]: gpu-[001-128]

Names on either side are host lists. A domain is known by its whole path, so each block may have a
rack-01; ``/`` is in no name. A node stands in one domain and on one island at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import TreeNode

SOURCE = "plan"

TIER_NAME_MAX = 63

_FIELDS = ("version", "tiers", "domains", "scaleUpDomains")


def parse(text: str) -> SourceReport:
    """Read a plan. Raises WiringError where no node has a place in it."""
    omissions = Omissions(SOURCE)
    plan = documents.read_versioned(text, omissions, "a plan", _FIELDS)
    tiers = _tier_names(plan["tiers"])
    racks = trees.members(_domains(plan["domains"], tiers), omissions)
    if not racks:
        raise omissions.refuse("no node is in it")
    scale_up: dict[str, str] = {}
    if "scaleUpDomains" in plan:
        groups = _groups(plan["scaleUpDomains"], "a scale-up domain")
        scale_up = trees.members(groups, omissions)
    return SourceReport(
        SOURCE,
        Provenance.DECLARED,
        tuple(
            {node: "/".join(name.split("/")[:depth]) for node, name in racks.items()}
            for depth in range(len(tiers), 0, -1)
        ),
        scale_up,
        omissions.sentences,
        names=tuple(reversed(tiers)),
    )


def _tier_names(value: Value) -> list[str]:
    names = [tier.text("a tier's name") for tier in value.each("tiers")]
    for name in names:
        if len(name) > TIER_NAME_MAX or not name.isprintable():
            rule = f"{name[:80]!r}: a tier's name has up to {TIER_NAME_MAX} printable characters"
            raise value.error(rule)
    if not 1 <= len({*names}) == len(names) <= trees.TIERS_MAX:
        raise value.error(f"tiers are named here, each once: 1 to {trees.TIERS_MAX}")
    return names


def _domains(value: Value, tiers: Sequence[str], path: tuple[str, ...] = ()) -> Iterator[TreeNode]:
    tier, *inner = tiers
    if not inner:
        yield from _groups(value, f"a {tier}", path)
        return
    with value.omissions.part():
        for name, below in value.entries(f"each {tier} and what is in it").items():
            with value.omissions.part():
                if _names(below, name, f"a {tier}") != [name]:
                    rule = "a range stands for several of the innermost tier alone"
                    raise below.error(f"{name[:80]!r}: {rule}")
                yield from _domains(below, inner, (*path, name))


def _groups(value: Value, what: str, path: tuple[str, ...] = ()) -> Iterator[TreeNode]:
    """Groups, and how the nodes on the right are shared among those on the left."""
    with value.omissions.part():
        for key, listed in value.entries(f"names and their nodes, each {what}").items():
            with value.omissions.part():
                groups = _names(listed, key, what)
                nodes = trees.expand(listed, f"the nodes of {what}, a host list")
                each, left = divmod(len(nodes), len(groups))
                if left or len({*nodes}) < len(nodes):
                    rule = f"{len(nodes)} nodes are not shared evenly by {len(groups)}"
                    raise listed.error(rule if left else "a node stands twice in the list")
                for at, name in enumerate(groups):
                    part = nodes[at * each : (at + 1) * each]
                    yield TreeNode(listed.line, "/".join((*path, name)), nodes=part)


def _names(value: Value, key: str, what: str) -> list[str]:
    if "/" in key:
        raise value.error(f"{key[:80]!r}: no {what.partition(' ')[2]} has / in it")
    return trees.names(SOURCE, value.line, key)
