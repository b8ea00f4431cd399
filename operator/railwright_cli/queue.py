"""``railwright queue``: the jobs that run and wait, in the order in which they get nodes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from railwright_api import names, routes
from railwright_cli.api_objects import JobView, PlacementView
from railwright_cli.api_server import ApiServer
from railwright_cli.errors import AccessDeniedError
from railwright_cli.jobs import UNFINISHED, Context, Namespace, Queued, note_unknown, queue_order
from railwright_cli.tables import OutputOption, Row, show_rows
from railwright_topology.folding import fold


def queue(
    namespace: Namespace = "",
    everywhere: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="the jobs of all namespaces")
    ] = False,
    name: Annotated[str, typer.Option("--queue", help="only the jobs of this queue")] = "",
    context: Context = "",
    output: OutputOption = "table",
) -> None:
    """List the jobs that run, wait or are suspended.

    Jobs that wait have a position: a job with a lower one gets nodes first. Jobs that cannot get
    nodes as they are, for the reason that is shown, have none. All queues share one order, by
    priority and then by age, so positions count the jobs of all namespaces. For jobs that have
    ended: kubectl get tj.

    TIME is since when all ranks of the attempt run. With -o wide, the nodes of jobs that have some.
    """
    server = ApiServer(context, namespace)
    placed = {} if output == "table" else _nodes(server, everywhere=everywhere)
    found = _visible(server, everywhere=everywhere)
    rows = [
        row(each, placed)
        for each in found
        if (everywhere or each.job.metadata.namespace == server.namespace)
        and name in ("", each.job.spec.queue)
    ]
    place = "any namespace" if everywhere else f"namespace {server.namespace}"
    hidden = () if everywhere else ("namespace",)
    none = f"no job runs or waits in {place}"
    if name:
        queues = {each.job.spec.queue for each in found}
        nearest = [] if name in queues else difflib.get_close_matches(name, queues, n=1)
        none += f" in queue {name}" + "".join(f"; the nearest is {each!r}" for each in nearest)
    show_rows(rows, output, none, hidden=hidden, wide=("nodeList", "message"))


def _visible(server: ApiServer, *, everywhere: bool) -> list[Queued]:
    """The jobs that the user may list: without positions if these are not all."""
    try:
        return queue_order(server)
    except AccessDeniedError as error:
        if everywhere:
            raise
        note_unknown(error)
    path = routes.kind(names.TRAINING_JOBS, server.namespace)
    jobs = server.items(path, JobView, UNFINISHED)
    return [Queued(job, None, None) for job in jobs]


def _nodes(server: ApiServer, *, everywhere: bool) -> dict[tuple[str, str], str]:
    """The nodes of each attempt by namespace and name of its Placement; none if the user may not
    list these."""
    path = routes.kind(names.PLACEMENTS, None if everywhere else server.namespace)
    try:
        found = server.items(path, PlacementView)
    except AccessDeniedError:
        return {}
    return nodes_by_placement(found)


def nodes_by_placement(found: Iterable[PlacementView]) -> dict[tuple[str, str], str]:
    """The nodes of each attempt by namespace and name of its Placement."""
    return {(each.metadata.namespace, each.metadata.name): fold(each.spec.nodes) for each in found}


def row(queued: Queued, placed: Mapping[tuple[str, str], str]) -> Row:
    """The row of a job, with the nodes of each attempt by its Placement."""
    job, status = queued.job, queued.job.status
    placement = names.placement_name(job.metadata.name, status.attempt)
    return {
        "position": queued.position,
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "queue": job.spec.queue,
        "priority": queued.priority,
        "phase": "Deleting" if job.is_being_deleted else status.phase,
        "nodes": status.nodes or job.replicas,
        "progress": status.progress and status.progress.percent,
        "reason": status.reason,
        "runningSince": job.running_since,
        "created": job.metadata.creation_timestamp,
        "nodeList": placed.get((job.metadata.namespace, placement)) if status.nodes else None,
        "message": status.message,
    }
