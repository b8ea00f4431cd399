"""``railwright nodes``: each node with its rack, its condition, its speed, and what uses it."""

from __future__ import annotations

from typing import Annotated

import typer

from railwright_cli.api_server import ApiServer
from railwright_cli.errors import UsageError
from railwright_cli.inventory import ClusterInventory, NodeUse, read_inventory
from railwright_cli.jobs import Context
from railwright_cli.tables import OutputOption, Row, show_rows


def nodes(
    chosen: Annotated[
        list[str] | None, typer.Argument(metavar="NODE...", help="default: all nodes")
    ] = None,
    context: Context = "",
    output: OutputOption = "table",
) -> None:
    """List nodes: their domain, state, devices in use, relative speed and jobs.

    The domain is that of the finest level of the network, commonly the rack. What you may not read
    is shown as -.
    """
    found = read_inventory(ApiServer(context))
    by_name = {use.node.metadata.name: use for use in found.nodes}
    if missing := [name for name in chosen or () if name not in by_name]:
        raise UsageError(f"there is no node {', '.join(missing)}")
    uses = [by_name[name] for name in chosen] if chosen else found.nodes
    rows = [_row(use) for use in uses]
    show_rows(rows, output, "the cluster has no nodes", wide=("slow", "hardware"))
    note_unread(found)


def note_unread(found: ClusterInventory) -> None:
    """Name on stderr what the user may not read."""
    if found.unread:
        names = ", ".join(found.unread)
        message = f"you may not list {names} of the whole cluster: what needs them is unknown"
        typer.echo(f"railwright: {message}", err=True)


def _row(use: NodeUse) -> Row:
    health = use.health
    return {
        "name": use.node.metadata.name,
        "domain": next((name for name in reversed(use.domains) if name), None),
        "state": use.state,
        "use": use.use,
        "devices": [_device(use, name, count) for name, count in use.devices.items()],
        "speed": health.relative_speed.products if health.relative_speed else None,
        "jobs": None if use.used is None else sorted(use.jobs),
        "slow": "; ".join(health.slow),
        "hardware": health.hardware,
    }


def _device(use: NodeUse, name: str, count: int) -> str:
    shown = f"{count}" if use.used is None else f"{use.used[name]}/{count}"
    return f"{shown} {name}"
