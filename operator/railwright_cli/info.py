"""``railwright info``: how many nodes of each kind there are, and how many of them are free."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Annotated

import typer

from railwright_api import names
from railwright_cli.api_server import ApiServer
from railwright_cli.errors import UsageError
from railwright_cli.inventory import ClusterInventory, NodeUse, read_inventory
from railwright_cli.jobs import Context
from railwright_cli.nodes import note_unread
from railwright_cli.tables import OutputOption, Row, show_rows
from railwright_topology.grouping import group


def info(
    level: Annotated[
        str, typer.Option("--by", metavar="LEVEL", help="a row for each domain of this level")
    ] = "",
    context: Context = "",
    output: OutputOption = "table",
) -> None:
    """Count nodes by their devices: free, partly and fully used, and unavailable.

    Unavailable nodes are not ready, cordoned, or without the devices that they should have. Nodes
    with taints count as available, since jobs can tolerate them. A level is named as in the
    Fabric, or by its end: rack for railwright.dev/rack. What you may not read is shown as -.
    """
    found = read_inventory(ApiServer(context))
    at = _level(found, level) if level else None
    groups = group(((_kind(use), _domain(use, at)), use) for use in found.nodes)
    rows = [_row(*key, uses) for key, uses in groups.items()]
    hidden = () if level else ("domain",)
    show_rows(rows, output, "the cluster has no nodes", hidden=hidden)
    note_unread(found)


def _level(found: ClusterInventory, level: str) -> int:
    for at, name in enumerate(found.levels):
        if level in (name, name.rpartition("/")[2]):
            return at
    if names.FABRICS in found.unread:
        raise UsageError("you may not read the Fabric, which has the levels of the network")
    if not found.levels:
        raise UsageError("the network has no levels: see kubectl describe fabric")
    (nearest,) = difflib.get_close_matches(level, found.levels, n=1, cutoff=0)
    existing = ", ".join(found.levels)
    raise UsageError(f"the network has no level {level!r}: it has {existing}; try {nearest}")


def _domain(use: NodeUse, at: int | None) -> str:
    return use.domains[at] if at is not None and at < len(use.domains) else ""


def _kind(use: NodeUse) -> str:
    shown = [f"{count} × {name}" for name, count in sorted(use.devices.items())]
    return " + ".join(shown) or "none"


def _row(kind: str, domain: str, uses: list[NodeUse]) -> Row:
    available = [use for use in uses if use.is_available]
    counts = Counter(use.use for use in available)
    is_known = all(use.used is not None for use in uses)
    return {
        "devices": kind,
        "domain": domain or None,
        "nodes": len(uses),
        "free": counts["Free"] if is_known else None,
        "partly": counts["Partly"] if is_known else None,
        "full": counts["Full"] if is_known else None,
        "unavailable": len(uses) - len(available),
        "freeDevices": _listed(_free(available)) if is_known else None,
        "allDevices": _listed(sum((Counter(use.devices) for use in uses), Counter())),
    }


def _free(uses: list[NodeUse]) -> Counter[str]:
    """The devices that no pod uses."""
    free = Counter({name: 0 for use in uses for name in use.devices})
    for use in uses:
        for name, count in use.allocatable.items():
            free[name] += max(0, count - (use.used or Counter())[name])
    return free


def _listed(counts: Counter[str]) -> list[str]:
    return [f"{count} {name}" for name, count in sorted(counts.items())]
