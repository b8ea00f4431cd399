"""Queue: where jobs wait, cluster-wide, in order of priority and then of age."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.schema import (
    AGE,
    Column,
    Count,
    Definition,
    Part,
    Resource,
    Time,
    name_length,
    rules,
)

NAME_LENGTH_MAX = 63


class QueueSpec(Part):
    """Specification of a Queue."""

    description: Annotated[str, Field(max_length=256)] | None = None
    """Human-readable description of the queue."""


class QueueStatus(Part):
    """Most recently observed status of a Queue."""

    waiting: Count | None = None
    """Number of jobs that wait for nodes."""
    oldest_waiting_since: Time | None = None
    """Time since which the job waits that has waited longest; absent if none waits."""
    running: Count | None = None
    """Number of jobs that hold nodes."""


class Queue(Resource):
    """Where jobs wait for nodes. A job names its queue; without one it waits in the queue default,
    which always exists."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            name_length(NAME_LENGTH_MAX, "jobs name their queue in a field of that length")
        )
    )

    kind: Literal["Queue"] = "Queue"
    spec: QueueSpec = Field(default_factory=QueueSpec)
    """Specification of the queue."""
    status: QueueStatus | None = None
    """Most recently observed status of the queue. Written by the operator; read-only."""


DEFINITION = Definition(
    Queue,
    plural=names.QUEUES,
    scope="Cluster",
    categories=("railwright",),
    columns=(
        Column("Waiting", ".status.waiting", "integer"),
        Column("Oldest", ".status.oldestWaitingSince", "date"),
        Column("Running", ".status.running", "integer"),
        AGE,
        Column("Description", ".spec.description", wide=True),
    ),
)
