"""A plan of the site that its people declare: how it was meant to be.

    version: 1
    tiers: [block, rack]            # as they lie in each other, the coarsest first
    domains:
      block-a:
        rack-[01-16]: gpu-[001-256] # 16 racks share 256 nodes in their order, 16 each
        rack-17: gpu-[257-264],gpu-300
      block-b:
        rack-[01-16]: gpu-[301-556]
    islands:                        # may be left out: domains of device links (NVLink, XGMI, HCCS)
      nvl-[1-8]: gpu-[001-144]

Names on either side are host lists. A domain is known by its whole path, so each block may have a
rack-01; ``/`` is in no name. A node stands in one domain and on one island at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright_topology.accounts import Account, Basis
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import Switch
from railwright_topology.wiring import WiringError

SOURCE = "plan"

VERSION = "1"
TIER_NAME_MAX = 63

_FIELDS = ("version", "tiers", "domains", "islands")
_REQUIRED = ("version", "tiers", "domains")


def parse(text: str) -> Account:
    """Read a plan. Raises WiringError where no node has a place in it."""
    omissions = Omissions(SOURCE)
    plan = documents.read(SOURCE, text, omissions)
    fields = plan.fields("a plan", _FIELDS, omissions)
    for key in _REQUIRED:
        if key not in fields:
            raise plan.error(f"a plan has {', '.join(_REQUIRED)}; {key} is not there")
    if (version := fields["version"].text("a version")) != VERSION:
        omissions.note(fields["version"].line, f"version {version[:16]!r} is read as {VERSION}")
    named = [tier.text("a tier's name") for tier in fields["tiers"].each("tiers")]
    for name in named:
        if len(name) > TIER_NAME_MAX or not name.isprintable():
            rule = f"{name[:80]!r}: a tier's name has up to {TIER_NAME_MAX} printable characters"
            raise fields["tiers"].error(rule)
    if not 1 <= len({*named}) == len(named) <= trees.TIERS_MAX:
        rule = f"tiers are named here, each once: 1 to {trees.TIERS_MAX}"
        raise fields["tiers"].error(rule)
    racks = trees.members(_domains(fields["domains"], named, (), omissions), omissions)
    if not racks:
        raise omissions.refuse("no node is in it")
    islands: dict[str, str] = {}
    if "islands" in fields:
        islands = trees.members(_groups(fields["islands"], "an island", (), omissions), omissions)
    tiers = [
        {node: "/".join(name.split("/")[: depth + 1]) for node, name in racks.items()}
        for depth in reversed(range(len(named)))
    ]
    return Account(
        SOURCE,
        Basis.DECLARED,
        tuple(tiers),
        islands,
        omissions.sentences,
        names=tuple(reversed(named)),
    )


def _domains(
    value: Value, named: Sequence[str], path: tuple[str, ...], omissions: Omissions
) -> Iterator[Switch]:
    tier, *inner = named
    if not inner:
        yield from _groups(value, f"a {tier}", path, omissions)
        return
    with omissions.part():
        for name, below in value.entries(f"each {tier} and what is in it").items():
            with omissions.part():
                if _names(below.line, name, f"a {tier}") != [name]:
                    rule = "a range stands for several of the innermost tier alone"
                    raise below.error(f"{name[:80]!r}: {rule}")
                yield from _domains(below, inner, (*path, name), omissions)


def _groups(
    value: Value, what: str, path: tuple[str, ...], omissions: Omissions
) -> Iterator[Switch]:
    """Groups, and how the nodes on the right are shared among those on the left."""
    with omissions.part():
        for key, said in value.entries(f"names and their nodes, each {what}").items():
            with omissions.part():
                groups = _names(said.line, key, what)
                hosts = said.text(f"the nodes of {what}, a host list")
                nodes = trees.names(SOURCE, said.line, hosts)
                each, left = divmod(len(nodes), len(groups))
                if left or len({*nodes}) < len(nodes):
                    rule = f"{len(nodes)} nodes are not shared evenly by {len(groups)}"
                    raise said.error(rule if left else "a node stands twice in the list")
                for at, name in enumerate(groups):
                    some = nodes[at * each : (at + 1) * each]
                    yield Switch(said.line, "/".join((*path, name)), nodes=some)


def _names(line: int, key: str, what: str) -> list[str]:
    if "/" in key:
        raise WiringError(SOURCE, line, f"{key[:80]!r}: no {what.partition(' ')[2]} has / in it")
    return trees.names(SOURCE, line, key)
