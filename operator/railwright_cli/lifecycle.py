"""``railwright cancel``, ``suspend`` and ``resume``: what a user does to a job that exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from railwright_cli.api_objects import JobView
from railwright_cli.errors import EXIT_NOT_DONE, RequestError
from railwright_cli.jobs import Context, JobReference, Namespace, job_names, references
from railwright_cli.tables import ResultOutput, ResultOutputOption, show_result

JobNames = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="NAME or NAMESPACE/NAME", autocompletion=job_names),
]

Act = Callable[[JobReference, JobView], str]
"""What is done to a job, and its result in words."""


def cancel(
    jobs: JobNames,
    namespace: Namespace = "",
    context: Context = "",
    output: ResultOutputOption = "text",
) -> None:
    """Delete jobs and their pods. Checkpoints stay on their volume."""

    def delete(its: JobReference, job: JobView) -> str:
        try:
            its.server.delete(its.path, uid=job.metadata.uid)
        except RequestError as error:
            if not error.is_absence:
                raise
        return "deleted"

    _for_each(jobs, namespace, context, output, delete)


def suspend(
    jobs: JobNames,
    namespace: Namespace = "",
    context: Context = "",
    output: ResultOutputOption = "text",
) -> None:
    """End the pods of jobs and keep the jobs. They wait until `railwright resume`."""
    _for_each(jobs, namespace, context, output, _set_suspend(True, "suspended"))


def resume(
    jobs: JobNames,
    namespace: Namespace = "",
    context: Context = "",
    output: ResultOutputOption = "text",
) -> None:
    """Let suspended jobs wait for nodes again. They continue from their last checkpoints."""
    _for_each(jobs, namespace, context, output, _set_suspend(False, "resumed"))


def _set_suspend(value: bool, done: str) -> Act:
    def change(its: JobReference, job: JobView) -> str:
        if job.is_finished:
            return f"has ended already: it is {job.status.phase}"
        if job.spec.suspend == value:
            return f"was {done} already"
        # Of another job of its name the API server refuses the UID.
        its.server.merge(
            its.path, {"metadata": {"uid": job.metadata.uid}, "spec": {"suspend": value}}
        )
        return done

    return change


def _for_each(
    jobs: list[str], namespace: str, context: str, output: ResultOutput, act: Act
) -> None:
    """Act on all jobs, also after one for which that fails, and print the result of each. A
    misspelt name is refused before anything is changed."""
    existing = [(its, its.read()) for its in references(jobs, namespace, context)]
    is_done = True
    for its, job in existing:
        name = f"{its.namespace}/{its.name}"
        try:
            result = act(its, job)
            document = {"namespace": its.namespace, "name": its.name, "result": result}
            show_result(f"{name} {result}", its.name, document, output)
        except RequestError as error:
            typer.echo(f"railwright: {name}: {error}", err=True)
            is_done = False
    if not is_done:
        raise typer.Exit(EXIT_NOT_DONE)
