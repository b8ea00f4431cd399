"""Queue: where jobs wait, cluster-wide, in order of priority and then of age."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.schema import AGE, Column, Count, Definition, Part, Resource, name_length, rules

NAME_LENGTH_MAX = 63


class QueueSpec(Part):
    """What the queue is for."""

    description: Annotated[str, Field(max_length=256)] | None = None
    """Words for people: whom the queue is for."""


class QueueStatus(Part):
    """How full the queue is."""

    waiting: Count | None = None
    """Jobs that wait for nodes."""
    running: Count | None = None
    """Jobs that hold nodes."""


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
    """What the queue is for."""
    status: QueueStatus | None = None
    """How full the queue is; written by the operator."""


DEFINITION = Definition(
    Queue,
    plural=names.QUEUES,
    scope="Cluster",
    categories=("railwright",),
    columns=(
        Column("Waiting", ".status.waiting", "integer"),
        Column("Running", ".status.running", "integer"),
        AGE,
        Column("Description", ".spec.description", wide=True),
    ),
)
