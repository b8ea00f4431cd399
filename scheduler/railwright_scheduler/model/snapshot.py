"""Everything a decision may depend on, as one frozen value.

The operator makes it from what it watches, the simulator from its world, a test from a table; the
scheduler reads nothing else. Amounts are exact integers in base units: CPU in millicores, memory,
storage and huge pages in bytes, every other resource (devices, pods) in pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from railwright_scheduler.model.node_affinity import NodeAffinity
from railwright_scheduler.model.workload import Workload
from railwright_topology.links import Links
from railwright_topology.miscabling import Rails
from railwright_topology.relative_speed import EVEN, RelativeSpeed

Amounts = Mapping[str, int]

QueuePosition = tuple[int, int, str]
"""Where a job is in the queue (``order``); jobs ahead of it have lower positions."""


def is_device(resource: str) -> bool:
    """Whether this is the resource of a device plugin, such as ``nvidia.com/gpu``: their names have
    a slash, and those of what Kubernetes counts itself have none."""
    return "/" in resource


@dataclass(frozen=True, slots=True)
class QueueRound:
    """A round of cycles that evaluates every waiting job once.

    The next cycle goes on at ``start``, behind the front if that is None, up to ``end``: jobs that
    came behind it since the round began are of the next one, which else would never begin.
    ``is_blocked``: at ``start`` is a gang that waits for the API server, so nothing starts sooner.
    """

    start: QueuePosition | None
    end: QueuePosition
    is_blocked: bool = False


UNKNOWN_DOMAIN = ""

TIERS = ("nearest", "second", "third")
"""What levels are called whatever their names, from the finest that nodes share outwards; that of
scale-up domains is none of them."""


LOST_GRACE_S = 300.0
"""Most nodes that are lost come back within minutes: so long a waiting job keeps what it reserved
for a gang that cannot start without them."""


class Unavailable(StrEnum):
    """Why a node takes no new pods, whatever the job."""

    UNREADY = "unready"
    CORDONED = "cordoned"
    LOST = "lost"
    DOUBLE_BOOKED = "double-booked"


class Purpose(StrEnum):
    """What an attempt is for. PRE_RUN: it only records what the ranks of the job send."""

    TRAINING = "Training"
    PRE_RUN = "PreRun"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; only NoSchedule and NoExecute keep pods away here."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration, with Kubernetes' meaning: an empty key with Exists tolerates all."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class TierLimit:
    """A number of nodes in each domain of a tier."""

    tier: str
    nodes: int


@dataclass(frozen=True, slots=True)
class TopologyConstraints:
    """The topology constraints of a job, beside the preference for the fewest domains.

    All nodes are in one domain of the tier ``required``, and of ``preferred`` if one has capacity.
    Of ``segments`` each run of so many node ranks is in one domain of the tier; each size divides
    the next one. Of ``spreads`` no domain of the tier has more nodes. A tier is a level, or one of
    ``TIERS``; an empty one sets no constraint. ``aligned`` requires nodes with correctly cabled
    rails, and their adapters on the same rails in the same order.
    """

    required: str = ""
    preferred: str = ""
    segments: tuple[TierLimit, ...] = ()
    spreads: tuple[TierLimit, ...] = ()
    aligned: bool = False

    @property
    def segment(self) -> int:
        """The size of the largest segments, which the nodes of a gang come in."""
        return max((each.nodes for each in self.segments), default=1)


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: its domains, its resources, and their usage.

    ``domains`` runs from the coarsest level of the snapshot to the finest, as long as its
    ``levels``. A domain without a name is UNKNOWN_DOMAIN; where there are scale-up domains, names
    are those of ``scale_up_domains.resolve_domains``.
    ``used`` counts live pods and the assumed pods of committed plans; ``foreign`` is the part of
    pods of no job, which may never end. ``machine`` is its kind in the cost model; empty without
    one. ``relative_speed`` is its speed relative to most nodes of that kind. ``rails`` are None if
    not reported, and ``device``, the kind of its devices, is empty if unknown. ``recently_lost``:
    it became unavailable by itself less than ``LOST_GRACE_S`` ago, so waiting jobs still count it.
    ``promised`` are the resources of which it had more when the pods that hold them were bound,
    each with that amount.
    """

    name: str
    domains: tuple[str, ...]
    allocatable: Amounts
    used: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unavailable: Unavailable | None = None
    machine: str = ""
    relative_speed: RelativeSpeed = EVEN
    rails: Rails | None = None
    device: str = ""
    recently_lost: bool = False
    foreign: Amounts = field(default_factory=dict)
    promised: Amounts = field(default_factory=dict)


NO_CONSTRAINTS = TopologyConstraints()


@dataclass(frozen=True, slots=True)
class Role:
    """Equal pods of a job: ``replicas`` pods that request ``per_pod`` each, on distinct nodes that
    match ``selector`` and ``affinity``. Pods of two roles may share a node.

    ``constraints`` are the role's own, or the job's if it ``shares_topology``: these hold for the
    pods of all such roles together. Roles of one ``group``, by default the role alone, share one
    world of ranks. ``workload`` is what its ranks train, ``ranks_per_pod`` in each
    pod; at most one role of a job has one. ``before`` are the nodes of its pods in the last
    attempt, while the pods of that are being deleted; empty for nodes blamed for its end.
    """

    replicas: int
    per_pod: Amounts
    name: str = ""
    group: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    ranks_per_pod: int = 1
    workload: Workload | None = None
    constraints: TopologyConstraints = NO_CONSTRAINTS
    shares_topology: bool = True
    before: tuple[str, ...] = ()

    @property
    def has_traffic(self) -> bool:
        """Whether it is known what its ranks send."""
        return self.workload is not None and self.workload.has_traffic


@dataclass(frozen=True, slots=True)
class Job:
    """A job that needs an attempt: the gang of all pods of its ``roles``, numbered through in the
    order of the roles.

    ``submitted_s`` orders jobs of equal priority (seconds, any epoch; the older first; then uid).
    ``attempt`` is the number the attempt would get. ``queue`` need not exist. ``purpose`` is
    that of the attempt.
    """

    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    submitted_s: int
    attempt: int
    roles: tuple[Role, ...]
    purpose: Purpose = Purpose.TRAINING

    @property
    def num_pods(self) -> int:
        """The size of the gang."""
        return sum(role.replicas for role in self.roles)

    @property
    def pod_ranges(self) -> tuple[slice, ...]:
        """Of the pods of the gang those of each role."""
        ends = [*itertools.accumulate(role.replicas for role in self.roles)]
        return tuple(map(slice, [0, *ends[:-1]], ends))

    @property
    def amounts(self) -> list[Amounts]:
        """The request of each pod."""
        return [role.per_pod for role in self.roles for _ in range(role.replicas)]

    @property
    def training(self) -> tuple[Role, slice] | None:
        """The role that has the workload, and its pods; None if no role has one."""
        pairs = zip(self.roles, self.pod_ranges, strict=True)
        return next((pair for pair in pairs if pair[0].workload is not None), None)


@dataclass(frozen=True, slots=True)
class SendingJob:
    """A job that sends while others are placed: what it does, and the node of each node rank."""

    workload: Workload
    ranks_per_node: int
    nodes: tuple[str, ...]
    job_uid: str = ""


def sending_job(job: Job, nodes: tuple[str, ...]) -> SendingJob | None:
    """The traffic of a job whose pods run on these ``nodes``; None if it sends nothing that is
    known, or is to end, as it has another number of pods now."""
    if job.training is None or len(nodes) != job.num_pods:
        return None
    role, pods = job.training
    if role.workload is None or role.workload.model is None or role.replicas == 1:
        return None
    return SendingJob(role.workload, role.ranks_per_pod, nodes[pods], job.uid)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world as one value; ``levels`` names the domains, the coarsest first: block, rack.
    ``queues`` are the names of those that exist.

    ``links`` has what is known of each level's; it is empty where nothing is. ``senders`` are the
    jobs on several nodes of which it is known what they do. ``awaiting_own_pods`` wait for these to
    go before they start again; they reserve nodes as waiting jobs do. ``reserved`` has the
    nodes that jobs had reserved in the last cycle, by their UID, and ``queue_round`` is where
    that cycle stopped, None if it reached the end of the queue (``queue_window``).
    """

    levels: tuple[str, ...]
    nodes: tuple[Node, ...]
    queues: tuple[str, ...]
    jobs: tuple[Job, ...]
    links: tuple[Links, ...] = ()
    senders: tuple[SendingJob, ...] = ()
    awaiting_own_pods: tuple[Job, ...] = ()
    reserved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queue_round: QueueRound | None = None
