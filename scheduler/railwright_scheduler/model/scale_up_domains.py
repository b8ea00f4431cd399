"""Where nodes stand at the level of islands, and around it where nobody says.

Islands differ from racks in two ways. Not every node is on one, and those that are on none are not
apart for it. And nodes of one island are together whatever nobody knows of what lies around it.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.model.snapshot import UNKNOWN_DOMAIN
from railwright_topology.source_reports import ISLAND

NO_SCALE_UP_DOMAIN = "no island"
_AROUND = "unknown, around "


def resolve_domains(levels: Sequence[str], domains: Sequence[str]) -> tuple[str, ...]:
    """A node's domains, the coarsest first, with those that it is in together with others of which
    no name is known; each still UNKNOWN_DOMAIN is its own."""
    if ISLAND not in levels:
        return tuple(domains)
    at = levels.index(ISLAND)
    domain = domains[at]
    if not domain:
        return (*domains[:at], NO_SCALE_UP_DOMAIN, *domains[at + 1 :])
    return (*(domain or f"{_AROUND}{domain}" for domain in domains[:at]), *domains[at:])


def is_known(domain: str) -> bool:
    """Whether it is said which domain that is."""
    return domain not in (UNKNOWN_DOMAIN, NO_SCALE_UP_DOMAIN) and not domain.startswith(_AROUND)
