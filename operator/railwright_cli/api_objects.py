"""The fields of objects that commands show. What a later version adds is skipped."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from railwright_api import names


class MetadataView(Struct, rename="camel", frozen=True):
    """The metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    generation: int = 0


class ConfigMapView(Struct, rename="camel", frozen=True):
    """A ConfigMap. The values of ``binary_data`` are in base64."""

    metadata: MetadataView
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class ConditionView(Struct, rename="camel", frozen=True):
    """One fact about an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class RoleView(Struct, rename="camel", frozen=True):
    """A role of a job, or of a Placement."""

    name: str = "worker"
    group: str | None = None
    replicas: int = 1
    processes_per_replica: int = 1


class JobSpecView(Struct, rename="camel", frozen=True):
    """What a user wrote of a job."""

    queue: str = names.SINGLETON
    priority_class_name: str | None = None
    suspend: bool = False
    roles: tuple[RoleView, ...] = ()


class JobProgress(Struct, rename="camel", frozen=True):
    """What the ranks of a job last reported."""

    step: int = 0
    total_steps: int | None = None
    percent: str | None = None
    loss: str | None = None
    samples_per_second: str | None = None
    phase: str = ""
    time: datetime | None = None


class JobCheckpoint(Struct, rename="camel", frozen=True):
    """The newest checkpoint of a group in an attempt."""

    group: str
    attempt: int
    step: int


class LastTermination(Struct, rename="camel", frozen=True):
    """How the last attempt that did not succeed ended."""

    attempt: int = 0
    cause: str = ""
    message: str = ""
    node: str | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    last_lines: str | None = None
    time: datetime | None = None


class JobStatusView(Struct, rename="camel", frozen=True):
    """What the operator wrote on a job."""

    observed_generation: int | None = None
    phase: str = "Queued"
    reason: str | None = None
    message: str | None = None
    conditions: tuple[ConditionView, ...] = ()
    attempt: int = 0
    ended_attempt: int = 0
    restarts: int = 0
    nodes: int | None = None
    racks: int | None = None
    progress: JobProgress | None = None
    checkpoints: tuple[JobCheckpoint, ...] = ()
    last_termination: LastTermination | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class JobView(Struct, frozen=True):
    """A TrainingJob."""

    metadata: MetadataView
    spec: JobSpecView = JobSpecView()
    status: JobStatusView = JobStatusView()

    @property
    def replicas(self) -> int:
        """The number of its pods."""
        return sum(role.replicas for role in self.spec.roles)

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue for nodes."""
        is_queued = self.status.phase in ("Queued", "Recovering") and self.status.nodes is None
        return is_queued and not self.is_being_deleted

    @property
    def is_being_deleted(self) -> bool:
        """Whether it is there only until what it owns is gone, or until its finalizers are."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_finished(self) -> bool:
        """Whether its phase is final."""
        return self.status.phase in ("Succeeded", "Failed")

    def condition(self, name: str) -> ConditionView | None:
        """A condition of its status."""
        return next((each for each in self.status.conditions if each.type == name), None)


class PlacementSpecView(Struct, frozen=True):
    """Who goes where in an attempt."""

    nodes: tuple[str, ...] = ()
    roles: tuple[RoleView, ...] = ()


class PlacementView(Struct, frozen=True):
    """A Placement."""

    spec: PlacementSpecView = PlacementSpecView()


class PriorityClassView(Struct, rename="camel", frozen=True):
    """A PriorityClass."""

    metadata: MetadataView
    value: int = 0
    global_default: bool = False
