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
    """A ConfigMap."""

    metadata: MetadataView
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}


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

    @property
    def rank_group(self) -> str:
        """The group whose RANK its ranks share: its own if it names none."""
        return self.group or self.name


class TrainingView(Struct, rename="camel", frozen=True):
    """How a job trains."""

    global_batch: int | None = None


class JobWorkloadView(Struct, frozen=True):
    """What a job trains, and the role that does."""

    training: TrainingView = TrainingView()
    role: str | None = None


class JobSpecView(Struct, rename="camel", frozen=True):
    """What a user wrote of a job."""

    queue: str = names.SINGLETON
    priority_class_name: str | None = None
    suspend: bool = False
    roles: tuple[RoleView, ...] = ()
    workload: JobWorkloadView = JobWorkloadView()


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
    def newest_checkpoint(self) -> JobCheckpoint | None:
        """That of the group that trains, from which it resumes; None before the first."""
        trains = self.spec.workload.role
        role = next((each for each in self.spec.roles if trains in (None, each.name)), RoleView())
        found = (each for each in self.status.checkpoints if each.group == role.rank_group)
        return next(found, None)

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

    @property
    def running_since(self) -> datetime | None:
        """Since when all ranks of its attempt run; None if they do not."""
        found = self.condition("Running")
        return found.last_transition_time if found and found.status == "True" else None

    @property
    def seconds_a_step(self) -> float | None:
        """The time of a step, from the samples of a step and those of a second; None if the job
        does not state the one or its script does not report the other."""
        progress, samples = self.status.progress, self.spec.workload.training.global_batch
        if progress is None or not samples or not float(progress.samples_per_second or 0):
            return None
        return samples / float(progress.samples_per_second or 0)

    def condition(self, name: str) -> ConditionView | None:
        """A condition of its status."""
        return next((each for each in self.status.conditions if each.type == name), None)


class PlacementSpecView(Struct, frozen=True):
    """The nodes and roles of an attempt."""

    nodes: tuple[str, ...] = ()
    roles: tuple[RoleView, ...] = ()


class PlacementView(Struct, frozen=True):
    """A Placement."""

    spec: PlacementSpecView = PlacementSpecView()
    metadata: MetadataView = MetadataView()


class PriorityClassView(Struct, rename="camel", frozen=True):
    """A PriorityClass."""

    metadata: MetadataView
    value: int = 0
    global_default: bool = False


class ResourcesView(Struct, frozen=True):
    """What a container requests. Of devices, limits are requests too."""

    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class ContainerView(Struct, rename="camel", frozen=True):
    """A container of a pod."""

    name: str = ""
    image: str = ""
    resources: ResourcesView = ResourcesView()
    restart_policy: str = ""

    @property
    def tag(self) -> str:
        """The tag of its image, or without one the digest."""
        name, _, digest = self.image.rpartition("/")[2].partition("@")
        return name.partition(":")[2] or digest


class PodSpecView(Struct, rename="camel", frozen=True):
    """What a pod consists of, and where it is."""

    containers: tuple[ContainerView, ...] = ()
    node_name: str = ""
    init_containers: tuple[ContainerView, ...] = ()
    overhead: dict[str, str] = {}
    resources: ResourcesView = ResourcesView()


class PodStatusView(Struct, frozen=True):
    """How far a pod is."""

    phase: str = ""


class PodView(Struct, frozen=True):
    """A pod, or a template of pods."""

    metadata: MetadataView = MetadataView()
    spec: PodSpecView = PodSpecView()
    status: PodStatusView = PodStatusView()

    @property
    def attempt(self) -> int:
        """The attempt that it is of; 0 if it is of none, whatever its label."""
        label = self.metadata.labels.get(names.LABEL_ATTEMPT, "")
        return int(label) if label.isdecimal() else 0

    @property
    def is_ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")


class TopologyLevel(Struct, frozen=True):
    """A level of the network."""

    level: str = ""


class TopologyPlace(Struct, frozen=True):
    """Nodes that are in the same domains."""

    nodes: str = ""
    domains: tuple[str, ...] = ()


class FabricTopology(Struct, frozen=True):
    """The domains of all nodes."""

    levels: tuple[TopologyLevel, ...] = ()
    places: tuple[TopologyPlace, ...] = ()


class Freshness(Struct, frozen=True):
    """When the controllers last checked the network."""

    checked: datetime | None = None


class FabricAgents(Struct, frozen=True):
    """How many agents reported, and how many of them are silent."""

    nodes: int = 0
    silent: int = 0


class FabricStatusView(Struct, rename="camel", frozen=True):
    """What was discovered of the network, and what is wrong with it."""

    topology: FabricTopology = FabricTopology()
    freshness: Freshness = Freshness()
    agents: FabricAgents = FabricAgents()
    problem_count: int = 0
    conflict_count: int = 0
    domains: tuple[object, ...] = ()


class FabricView(Struct, frozen=True):
    """The Fabric."""

    status: FabricStatusView = FabricStatusView()
