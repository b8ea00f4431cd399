"""A role of a job: equal pods, each with the same number of ranks."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from railwright_api.pod_template import PodTemplate
from railwright_api.schema import (
    NODES_MAX,
    PROCESSES_MAX,
    ROLE_NAME_LENGTH_MAX,
    Part,
    Rule,
    rules,
)
from railwright_api.topology import TOO_NARROW, Topology

RoleName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=ROLE_NAME_LENGTH_MAX,
        pattern="^[a-z][a-z0-9]*$",
    ),
]

_LARGEST = "self.topology.segments[self.topology.segments.size() - 1].nodes"
_SEGMENTS = Rule(
    "!has(self.topology) || !has(self.topology.segments) || self.topology.segments.size() == 0 || "
    f"self.replicas % {_LARGEST} == 0",
    "replicas is %d: expected a multiple of the largest of topology.segments, which is %d",
    seen=("self.replicas", _LARGEST),
    field=".replicas",
)
_TOO_NARROW = (
    "self.topology.spread.filter(p, p.tier == self.topology.required && p.nodes < self.replicas)"
)
_SPREAD = Rule(
    "!has(self.topology) || !has(self.topology.required) || !has(self.topology.spread) || "
    f"{_TOO_NARROW}.size() == 0",
    TOO_NARROW,
    seen=("self.replicas", "self.topology.required", f"{_TOO_NARROW}[0].nodes"),
    field=".topology",
)


class Role(Part):
    """Role describes equal pods of a job. Pods of one role run on different nodes."""

    model_config = ConfigDict(json_schema_extra=rules(_SEGMENTS, _SPREAD))

    name: RoleName
    """Name of the role, such as worker: lower-case letters and digits. Part of the names of its
    pods, which end in job-role-index-attempt, so it has no dash."""
    group: RoleName | None = None
    """Group of the role. Roles of one group share RANK and WORLD_SIZE, in the order of the roles.
    If it is not set, the role is a group of its own."""
    replicas: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of pods, each on a node of its own."""
    processes_per_replica: Annotated[int, Field(ge=1, le=PROCESSES_MAX)] = 1
    """Number of ranks in each pod, one process each, commonly one for each device."""
    template: PodTemplate
    """Template of the pods of the role. Ranks run in the first container. A node must have what the
    containers request together."""
    topology: Topology | None = None
    """Topology constraints of this role, instead of those of the job."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Role:
        if self.topology is None:
            return self
        if self.replicas % self.topology.segment:
            raise ValueError(_SEGMENTS.message % (self.replicas, self.topology.segment))
        self.topology.check_required(self.replicas)
        return self

    @property
    def ranks(self) -> int:
        """Number of ranks in all of its pods."""
        return self.replicas * self.processes_per_replica
