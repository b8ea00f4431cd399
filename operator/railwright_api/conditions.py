"""Conditions as every Kubernetes object states them (``metav1.Condition``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright_api.schema import Code, Part, Sentence, Time


class Condition(Part):
    """One fact about the object, with the reason it holds or not."""

    type: Annotated[str, Field(max_length=316)]
    """The fact, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether the fact holds."""
    reason: Annotated[Code, Field(min_length=1)]
    """Why, as one word in CamelCase for programs."""
    message: Sentence
    """Why, as a sentence for people."""
    last_transition_time: Time
    """When status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this was found out for."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        max_length=16,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    ),
]
