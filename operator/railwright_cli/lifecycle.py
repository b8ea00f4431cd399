"""``railwright cancel``, ``suspend`` and ``resume``: what a user does to a job that exists."""

from __future__ import annotations

from typing import Annotated

import typer

from railwright_cli.api_objects import JobView
from railwright_cli.jobs import Context, JobReference, Namespace, job_names, reference

JobNames = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="NAME or NAMESPACE/NAME", autocompletion=job_names),
]


def cancel(jobs: JobNames, namespace: Namespace = "", context: Context = "") -> None:
    """Delete jobs and their pods. Checkpoints stay on their volume."""
    for its, _ in _existing(jobs, namespace, context):
        its.server.delete(its.path)
        typer.echo(f"{its.namespace}/{its.name} deleted")


def suspend(jobs: JobNames, namespace: Namespace = "", context: Context = "") -> None:
    """End the pods of jobs and keep the jobs. They wait until `railwright resume`."""
    _set_suspend(jobs, namespace, context, True, "suspended")


def resume(jobs: JobNames, namespace: Namespace = "", context: Context = "") -> None:
    """Let suspended jobs wait for nodes again. They continue from their last checkpoints."""
    _set_suspend(jobs, namespace, context, False, "resumed")


def _set_suspend(jobs: list[str], namespace: str, context: str, value: bool, done: str) -> None:
    for its, job in _existing(jobs, namespace, context):
        name = f"{its.namespace}/{its.name}"
        if job.is_finished:
            typer.echo(f"{name} has ended already: it is {job.status.phase}")
        elif job.spec.suspend == value:
            typer.echo(f"{name} was {done} already")
        else:
            its.server.merge(its.path, {"spec": {"suspend": value}})
            typer.echo(f"{name} {done}")


def _existing(jobs: list[str], namespace: str, context: str) -> list[tuple[JobReference, JobView]]:
    """All of them: a misspelt name is refused before anything is changed."""
    found = [reference(each, namespace, context) for each in jobs]
    return [(its, its.read()) for its in found]
