"""Resolve the domains of nodes at the scale-up level, and at coarser levels without names.

Scale-up domains differ from racks in two ways. A node may be in none, and nodes that are in none
count as one group. Nodes of one scale-up domain share their coarser domains, even if no source
names these.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.model.snapshot import UNKNOWN_DOMAIN
from railwright_topology.source_reports import SCALE_UP

NO_SCALE_UP_DOMAIN = "no scale-up domain"
_AROUND = "unknown, around "


def resolve_domains(levels: Sequence[str], domains: Sequence[str]) -> tuple[str, ...]:
    """A node's domains, the coarsest first, with those that it is in together with others of which
    no name is known; each still UNKNOWN_DOMAIN is its own."""
    if SCALE_UP not in levels:
        return tuple(domains)
    at = levels.index(SCALE_UP)
    domain = domains[at]
    if not domain:
        return (*domains[:at], NO_SCALE_UP_DOMAIN, *domains[at + 1 :])
    return (*(domain or f"{_AROUND}{domain}" for domain in domains[:at]), *domains[at:])


def level(levels: Sequence[str]) -> int:
    """The level of scale-up domains in the tree of domains; -1 if there is none."""
    return levels.index(SCALE_UP) + 1 if SCALE_UP in levels else -1


def is_known(domain: str) -> bool:
    """Whether a source names the domain."""
    return domain not in (UNKNOWN_DOMAIN, NO_SCALE_UP_DOMAIN) and not domain.startswith(_AROUND)
