"""TrainingJob: one distributed training run, all of its nodes or none, kept alive to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from railwright_api import names
from railwright_api.failure_policy import FailurePolicy
from railwright_api.role import Role
from railwright_api.schema import (
    AGE,
    NODES_MAX,
    ROLES_MAX,
    Column,
    Definition,
    Part,
    Resource,
    Rule,
    rules,
)
from railwright_api.topology import TOO_NARROW, Topology
from railwright_api.training_job_status import TrainingJobStatus
from railwright_api.workload import Workload, rules_of_ranks

PROFILE_STEPS_MAX = 1_000
TEN_YEARS_S = 315_360_000
PROGRESS_TIMEOUT_S_MIN = 10
"""Five heartbeats: what is shorter would end attempts whose heartbeats are late."""

START_TIMEOUT_S_MIN = 10
"""Time that a kubelet needs to start the containers of a pod, and to report that."""


def _held(field: str, same: str, *, seen: tuple[str, ...] = ()) -> Rule:
    """This field changes only in a job whose stored spec says suspend: else it is the ``same``."""
    change = " from %s to %s" if seen else ""
    return Rule(
        f"oldSelf.suspend || {same}",
        f"{field} cannot change{change} while the job is not suspended: set suspend: true and "
        f"apply, then change {field}, then set suspend: false",
        seen=seen,
        field=f".{field.partition('.')[0]}",
    )


def _same_if_set(field: str) -> str:
    has, had = f"has(self.{field})", f"has(oldSelf.{field})"
    return f"(({has} == {had} && (!{has} || self.{field} == oldSelf.{field})))"


_SHARING = "self.roles.filter(r, !has(r.topology))"
"""The roles that share the topology constraints of the job."""


def _both(value: str) -> tuple[str, ...]:
    return value.replace("self.", "oldSelf."), value


_TRAINS = (
    "(has(self.workload) && has(self.workload.role) ? self.workload.role : self.roles[0].name)"
)
_IMMUTABLE = (
    _held("queue", "(self.queue == oldSelf.queue)", seen=_both("self.queue")),
    _held(
        "priorityClassName",
        _same_if_set("priorityClassName"),
        seen=_both("has(self.priorityClassName) ? self.priorityClassName : 'none'"),
    ),
    # Lists with keys are equal in any order, and ranks are numbered in the order of the roles.
    _held(
        "roles",
        "(self.roles == oldSelf.roles && "
        "self.roles.map(r, r.name) == oldSelf.roles.map(r, r.name))",
    ),
    _held("topology", _same_if_set("topology")),
    _held("workload.role", f"{_TRAINS} == {_both(_TRAINS)[0]}", seen=_both(_TRAINS)),
)
_PODS = Rule(
    f"self.roles.map(r, r.replicas).sum() <= {NODES_MAX}",
    f"roles have %d replicas together: expected at most {NODES_MAX}",
    seen=("self.roles.map(r, r.replicas).sum()",),
    field=".roles",
)
_LARGEST = "self.topology.segments[self.topology.segments.size() - 1].nodes"
_SEGMENTS = Rule(
    "!has(self.topology) || !has(self.topology.segments) || self.topology.segments.size() == 0 || "
    f"{_SHARING}.all(r, r.replicas % {_LARGEST} == 0)",
    "the largest of topology.segments has %d nodes: expected a divisor of the replicas of every "
    "role, but %s has %d",
    seen=(
        _LARGEST,
        *(
            f"{_SHARING}.filter(r, r.replicas % {_LARGEST} != 0)[0].{field}"
            for field in ("name", "replicas")
        ),
    ),
    field=".topology",
)
_TOO_NARROW = (
    "self.topology.spread.filter(p, p.tier == self.topology.required && "
    f"{_SHARING}.exists(r, r.replicas > p.nodes))"
)
_SPREAD = Rule(
    "!has(self.topology) || !has(self.topology.required) || !has(self.topology.spread) || "
    f"{_TOO_NARROW}.size() == 0",
    TOO_NARROW,
    seen=(
        f"{_SHARING}.map(r, r.replicas).max()",
        "self.topology.required",
        f"{_TOO_NARROW}[0].nodes",
    ),
    field=".topology",
)
_TRAINING = "self.roles.filter(r, !has(self.workload.role) || r.name == self.workload.role)"
_WORKLOAD_ROLE = Rule(
    f"!has(self.workload) || {_TRAINING}.size() > 0",
    'workload.role is "%s", which is no role of this job: expected one of its roles, such as %s',
    seen=("self.workload.role", "self.roles[0].name"),
    field=".workload",
)
_SPLIT = "self.workload.parallelism"
_SERVERS = Rule(
    f"!has(self.workload) || !has({_SPLIT}.servers) || {_TRAINING}.size() == 0 || "
    f"self.roles.exists(r, r.name == {_SPLIT}.servers && r.name != {_TRAINING}[0].name)",
    'workload.parallelism.servers is "%s": expected a role of this job beside %s, which trains',
    seen=(f"{_SPLIT}.servers", f"{_TRAINING}[0].name"),
    field=".workload",
)
_REPLICA_RANKS = f"({_SPLIT}.tensor * {_SPLIT}.context * {_SPLIT}.pipeline)"
_OWN_RANKS = f"({_TRAINING}[0].replicas * {_TRAINING}[0].processesPerReplica)"
_GIVEN = f"!has(self.workload) || {_TRAINING}.size() == 0 || "
# A replica has fewer ranks than the role: the product of all four need not fit a number.
_IS_PRODUCT = (
    f"({_REPLICA_RANKS} <= {_OWN_RANKS} && {_REPLICA_RANKS} * {_SPLIT}.data == {_OWN_RANKS})"
)
_IS_MULTIPLE = f"({_REPLICA_RANKS} <= {_OWN_RANKS} && {_OWN_RANKS} % {_REPLICA_RANKS} == 0)"
_RANKS = Rule(
    f"{_GIVEN}!has({_SPLIT}.data) || {_IS_PRODUCT}",
    "workload.parallelism has %d ranks, but role %s has %d replicas of %d processes each, which "
    "are %d: these two must be equal, or leave out data",
    seen=(
        f"{_REPLICA_RANKS} * {_SPLIT}.data",
        f"{_TRAINING}[0].name",
        f"{_TRAINING}[0].replicas",
        f"{_TRAINING}[0].processesPerReplica",
        _OWN_RANKS,
    ),
    field=".workload",
)
_SHARED_RANKS = Rule(
    f"{_GIVEN}has({_SPLIT}.data) || {_IS_MULTIPLE}",
    "role %s has %d ranks: expected a multiple of %d, which is tensor times context times pipeline "
    "of workload.parallelism, such as %d",
    seen=(
        f"{_TRAINING}[0].name",
        _OWN_RANKS,
        _REPLICA_RANKS,
        f"{_OWN_RANKS} < {_REPLICA_RANKS} ? {_REPLICA_RANKS} : "
        f"({_OWN_RANKS} + {_REPLICA_RANKS} / 2) / {_REPLICA_RANKS} * {_REPLICA_RANKS}",
    ),
    field=".workload",
)
_DATA = f"has({_SPLIT}.data) ? {_SPLIT}.data : {_OWN_RANKS} / {_REPLICA_RANKS}"
_DATA_KNOWN = f"{_GIVEN}!(has({_SPLIT}.data) ? {_IS_PRODUCT} : {_IS_MULTIPLE}) || "
_SHARED = tuple(
    replace(rule, expression=f"{_DATA_KNOWN}({rule.expression})", field=".workload")
    for rule in rules_of_ranks("self.workload", _DATA)
)


_PRE_RUN = Rule(
    "self.profiling.preRun == 'Never' || "
    "(has(self.workload) && !has(self.workload.parallelism.servers))",
    "profiling.preRun is Auto: expected a workload without parameter servers, by which the "
    "pre-run is sized; add a workload, or set profiling.preRun: Never",
    field=".profiling",
)


_NAMES = "(self.metadata.name.size() + r.name.size())"


class Profiling(Part):
    """Recording of what the ranks send each other."""

    steps: Annotated[int, Field(ge=0, le=PROFILE_STEPS_MAX)] = 0
    """Number of steps that the ranks of every attempt record, for scripts that report steps. The
    next attempt is mapped by the recorded profile. 0 records nothing. An attempt of more than 256
    ranks of the role that trains records nothing; set preRun: Auto for such a job."""
    pre_run: Literal["Never", "Auto"] = "Never"
    """Auto starts a job that has no profile of its parallelism with a pre-run: an attempt of a few
    steps on the fewest nodes that can have that parallelism. The job is then mapped by the recorded
    profile. Auto needs a workload. Never starts the job without a pre-run."""


class TrainingJobSpec(Part):
    """Specification of the desired behavior of a TrainingJob."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *_IMMUTABLE,
            _PODS,
            _SEGMENTS,
            _SPREAD,
            _WORKLOAD_ROLE,
            _SERVERS,
            _RANKS,
            _SHARED_RANKS,
            *_SHARED,
            _PRE_RUN,
        )
    )

    queue: Annotated[str, Field(min_length=1, max_length=63)] = names.SINGLETON
    """Name of the Queue in which the job waits. Can change only while the job is suspended."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Name of the PriorityClass of all pods of the job. If it is not set, the priority is that of
    the cluster's default class, or 0. Can change only while the job is suspended."""
    roles: Annotated[
        tuple[Role, ...],
        Field(
            min_length=1,
            max_length=ROLES_MAX,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
    ]
    """Pods of the job. All pods of all roles start together or none. Can change only while the job
    is suspended."""
    failure_policy: FailurePolicy = FailurePolicy()
    """Number of failures that are retried. Only failures of the job itself count, such as a rank
    that exits with an error. Lost nodes and evictions do not count."""
    start_timeout_seconds: Annotated[int, Field(ge=START_TIMEOUT_S_MIN, le=TEN_YEARS_S)] = 600
    """Number of seconds in which all ranks must reach the start barrier, counted from the last
    image pull, or from the binding of the pods if no image was pulled. The attempt then ends as
    StartTimedOut."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=TEN_YEARS_S)] | None = None
    """Number of seconds for which the job may be active, counted from status.startedAt. Its attempt
    then ends, and the job fails as DeadlineExceeded. Recovery and waiting for nodes after the first
    start count. Suspending the job resets the time. No limit if not set."""
    progress_timeout_seconds: (
        Annotated[int, Field(ge=PROGRESS_TIMEOUT_S_MIN, le=TEN_YEARS_S)] | None
    ) = None
    """Number of seconds without a new step after which the attempt ends as Hung. It includes the
    first step, checkpoints and evaluations, and applies to scripts that report no steps. If it is
    not set, the limit is 5 times the 99th percentile of the step time, at least 60 seconds, and
    longer during other phases. A script that reports no steps then has no limit but 60 minutes
    without a heartbeat of its launchers."""
    suspend: bool = False
    """Whether the operator stops the job and releases its nodes. When it is set back to false, the
    job is queued again and resumes from its newest checkpoint."""
    topology: Topology | None = None
    """Topology constraints of the nodes. If it is not set, the nodes are as near to each other as
    possible. Can change only while the job is suspended."""
    workload: Workload | None = None
    """The model that the ranks train and how it is split over them. The ranks are mapped to the
    network by the traffic that follows from it, from the next attempt on. If it is not set, the
    ranks follow the order of the network."""
    profiling: Profiling = Profiling()
    """Recording of the traffic between ranks, by which the next attempt is mapped."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=TEN_YEARS_S)] | None = None
    """Number of seconds after which a finished job is deleted. If it is not set, the job is
    kept."""

    @model_validator(mode="after")
    def _is_consistent(self) -> TrainingJobSpec:
        if (pods := sum(role.replicas for role in self.roles)) > NODES_MAX:
            raise ValueError(_PODS.message % pods)
        segment = self.topology.segment if self.topology else 1
        for role in self.roles:
            if role.topology is None and role.replicas % segment:
                raise ValueError(_SEGMENTS.message % (segment, role.name, role.replicas))
            if role.topology is None and self.topology:
                self.topology.check_required(role.replicas)
        if self.workload:
            self._check_ranks(self.workload)
        is_sized = self.workload is not None and self.workload.parallelism.servers is None
        if self.profiling.pre_run == "Auto" and not is_sized:
            raise ValueError(_PRE_RUN.message)
        return self

    def _check_ranks(self, workload: Workload) -> None:
        """Raise ValueError unless the parallelism multiplies to the ranks of the role."""
        split, role = workload.parallelism, self.training_role
        if split.servers and (self.server_role is None or self.server_role is role):
            raise ValueError(_SERVERS.message % (split.servers, role.name))
        ranks, whole = role.ranks, split.replica_ranks
        if split.data is None and (ranks < whole or ranks % whole):
            near = max(whole, (ranks + whole // 2) // whole * whole)
            raise ValueError(_SHARED_RANKS.message % (role.name, ranks, whole, near))
        if split.data is not None and whole * split.data != ranks:
            counts = role.replicas, role.processes_per_replica, ranks
            raise ValueError(_RANKS.message % (whole * split.data, role.name, *counts))
        workload.on(ranks)

    @property
    def training_role(self) -> Role:
        """The role whose ranks the workload describes. Raises ValueError if there is none."""
        name = self.workload.role if self.workload else None
        found = [role for role in self.roles if name is None or role.name == name]
        if not found:
            raise ValueError(_WORKLOAD_ROLE.message % (name, self.roles[0].name))
        return found[0]

    @property
    def server_role(self) -> Role | None:
        """The role whose ranks are parameter servers; None without one."""
        name = self.workload.parallelism.servers if self.workload else None
        return next((role for role in self.roles if role.name == name), None)


class TrainingJob(Resource):
    """One distributed training run: all of its nodes start together, and it is kept alive through
    failures until it succeeds or its budget of failures is spent."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                f"self.spec.roles.all(r, {_NAMES} <= {names.JOB_AND_ROLE_LENGTH_MAX})",
                'metadata.name: "%s" and its longest role name have %d characters, at most '
                f"{names.JOB_AND_ROLE_LENGTH_MAX}: pods are named job-role-index-attempt, and that "
                f"must stay within {names.POD_NAME_LENGTH_MAX}",
                seen=("self.metadata.name", f"self.spec.roles.map(r, {_NAMES}).max()"),
            ),
            Rule(
                "!self.metadata.name.contains('.')",
                'metadata.name: "%s" holds a dot, but it becomes part of host names: use "%s"',
                seen=("self.metadata.name", "self.metadata.name.replace('.', '-')"),
            ),
        )
    )

    kind: Literal["TrainingJob"] = "TrainingJob"
    spec: TrainingJobSpec
    """Specification of the desired behavior of a TrainingJob."""
    status: TrainingJobStatus | None = None
    """How the job is doing; written by the operator."""


DEFINITION = Definition(
    TrainingJob,
    plural=names.TRAINING_JOBS,
    scope="Namespaced",
    short_names=("tj",),
    categories=("railwright",),
    selectable=(".spec.queue", ".status.phase"),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Queue", ".spec.queue"),
        Column("Nodes", ".status.nodes", "integer"),
        Column("Racks", ".status.racks", "integer"),
        Column("Step", ".status.progress.step", "integer"),
        Column("Progress", ".status.progress.percent"),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Reason", ".status.reason"),
        AGE,
        Column("Message", ".status.message", wide=True),
    ),
)
