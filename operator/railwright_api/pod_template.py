"""The pod template of a job: what Railwright must understand of it, with everything else kept.

Fields that a rule or the scheduler reads are typed here; the API server shows rules nothing else.
Fields that Railwright sets itself are reserved: present in the schema so that the refusal can say
what to do instead of dropping them silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names, schema
from railwright_api.node_affinity import Affinity
from railwright_api.schema import (
    LIST,
    OBJECT,
    Json,
    LabelKey,
    LabelValue,
    Name,
    Part,
    Quantity,
    Rule,
    reserving,
    rules,
)

TEXT_LENGTH_MAX = 32 * 1024
GRACE_MAX_S = 3600
"""Nor 0: the API server forgets such a pod at once, while its containers still run."""

Text = Annotated[str, Field(max_length=TEXT_LENGTH_MAX)]
Words = Annotated[tuple[Text, ...], Field(max_length=256)]

_NAME_RESERVED = Rule(
    f"!self.name.startsWith('{names.RESERVED_PREFIX}')",
    f'name: "%s" begins with the reserved word "{names.RESERVED_PREFIX}": choose another name',
    seen=("self.name",),
    field=".name",
)
_ENV_NAMES = ", ".join(f"'{name}'" for name in names.RESERVED_ENV)
_ENV_RESERVED = Rule(
    f"!(self.name in [{_ENV_NAMES}]) && !self.name.startsWith('{names.RESERVED_ENV_PREFIX}')",
    "name: %s is reserved, Railwright sets it for each rank: remove it",
    seen=("self.name",),
    field=".name",
)
_SPLIT = "['cpu', 'memory', 'ephemeral-storage']"
"""Resources that may be requested in fractions. Devices are counted in pieces."""
_HUGE = "k.matches('^hugepages-[1-9][0-9]{0,4}([0-9]{0,2}([kM]|[KM]i)?|Gi?)$')"
"""Huge pages of one size, which asInteger() can read. They come in whole pages."""
_MOST = "(k == 'cpu' ? '100k' : '256Ti')"
"""With at most 16,384 nodes, sums of these stay within 63 bits."""
_AMOUNT = "string(self[k])"
_DEVICE = f"!(k in {_SPLIT}) && !{_HUGE}"
_UNNAMED = f"{_DEVICE} && k.split('/').size() != 2"
_NOT_PIECES = f"{_DEVICE} && !{_AMOUNT}.matches('^[0-9]{{1,6}}$')"
_OUT_OF_RANGE = (
    f"(!isQuantity({_AMOUNT}) || (k != 'cpu' && {_AMOUNT}.endsWith('m')) || "
    f"quantity({_AMOUNT}).isLessThan(quantity('0')) || "
    f"quantity({_AMOUNT}).isGreaterThan(quantity({_MOST})))"
)
_NOT_AMOUNT = f"(k in {_SPLIT} || {_HUGE}) && {_OUT_OF_RANGE}"
_PAGE_SIZE = "k.replace('hugepages-', '')"
_EXAMPLE = f"k == 'cpu' ? '8 or 500m' : {_HUGE} ? {_PAGE_SIZE} : '64Gi'"
_PAGE = f"quantity({_PAGE_SIZE}).asInteger()"
_WHOLE_PAGES = f"int(quantity({_AMOUNT}).asApproximateFloat() + 0.5) / {_PAGE} * {_PAGE}"
"""Bytes of the whole pages in an amount. asInteger() fails for 1.5Gi; the approximation is off by
less than half a byte here."""
_NOT_PAGES = (
    f"{_HUGE} && !{_OUT_OF_RANGE} && "
    f"quantity({_AMOUNT}).compareTo(quantity('0').add({_WHOLE_PAGES})) != 0"
)

_AMOUNTS_SOUND = (
    schema.no_key(
        _UNNAMED,
        "%s is no resource of a pod: use cpu, memory, ephemeral-storage, hugepages-<size>, such as "
        "hugepages-2Mi, or the full name of a device, such as nvidia.com/gpu",
        seen=("k",),
    ),
    schema.no_key(
        _NOT_PIECES,
        '%s is "%s", not a whole number from 0 to 999999, such as 8',
        seen=("k", _AMOUNT),
    ),
    schema.no_key(
        _NOT_AMOUNT,
        '%s is "%s", not a quantity from 0 to %s, such as %s',
        seen=("k", _AMOUNT, _MOST, _EXAMPLE),
    ),
    schema.no_key(
        _NOT_PAGES,
        '%s is "%s", not a multiple of %s: the nearest are %d and %d',
        seen=("k", _AMOUNT, _PAGE_SIZE, _WHOLE_PAGES, f"{_WHOLE_PAGES} + {_PAGE}"),
    ),
)

Amounts = Annotated[
    dict[str, Quantity], Field(max_length=16, json_schema_extra=rules(*_AMOUNTS_SOUND))
]


_SAME_LIMIT = (
    "has(self.limits) && k in self.limits && "
    "isQuantity(string(self.limits[k])) && isQuantity(string(self.requests[k])) && "
    "quantity(string(self.limits[k])).compareTo(quantity(string(self.requests[k]))) == 0"
)
_UNEQUAL = f"self.requests.filter(k, !(k in {_SPLIT}) && !({_SAME_LIMIT}))"
_DEVICES_EQUAL = Rule(
    f"!has(self.requests) || {_UNEQUAL}.size() == 0",
    "requests has %s: expected the same amount in limits, as devices and huge pages cannot be "
    "shared; set limits alone, which are the requests then",
    seen=(f"{_UNEQUAL}[0]",),
)
_HUGE_LIMITS = f"self.limits.filter(k, {_HUGE})"
_PAGES_WITH_MEMORY = Rule(
    f"!has(self.limits) || {_HUGE_LIMITS}.size() == 0 || "
    "[self.limits, has(self.requests) ? self.requests : {}]"
    ".exists(each, 'cpu' in each || 'memory' in each)",
    "limits has %s without cpu and memory: expected one of them beside it, such as memory 64Gi",
    seen=(f"{_HUGE_LIMITS}[0]",),
)


class EnvVar(Part):
    """EnvVar is an environment variable of a container. valueFrom is supported as in any pod."""

    model_config = ConfigDict(extra="allow", json_schema_extra=rules(_ENV_RESERVED))

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the environment variable. RANK, WORLD_SIZE, MASTER_ADDR and the other variables of
    torchrun, and names that begin with RAILWRIGHT_, are set by Railwright and are refused."""
    value: Text | None = None
    """Value of the environment variable. Defaults to the empty string."""


class Resources(Part):
    """Resources describes the compute resource requirements of a container."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=rules(_DEVICES_EQUAL, _PAGES_WITH_MEMORY)
    )

    requests: Amounts | None = None
    """Minimum amount of compute resources required. Defaults to limits where those are set.
    Requests of devices and huge pages must equal their limits."""
    limits: Amounts | None = None
    """Maximum amount of compute resources allowed. Devices are whole numbers."""


class VolumeMount(Part):
    """VolumeMount describes the mounting of a volume within a container. All fields of volumeMounts
    of a pod are supported."""

    model_config = ConfigDict(extra="allow")

    name: Name
    """Name of the volume to mount. Must match the name of a volume of the pod."""
    mount_path: Annotated[str, Field(max_length=4096)]
    """Path within the container at which the volume is mounted."""


_RESERVED_IN_CONTAINER: Mapping[str, tuple[Json, str]] = {
    "restartPolicyRules": (LIST, "Railwright restarts whole attempts: see spec.failurePolicy"),
}


class Container(Part):
    """Container is a container of the pod. All fields of a container of a pod are supported, except
    restartPolicyRules."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=reserving(_RESERVED_IN_CONTAINER, _NAME_RESERVED)
    )

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the container, unique within the pod. Must not begin with `railwright`."""
    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Name of the container image. The image of the first container must have /bin/sh."""
    command: Words | None = None
    """Entrypoint array, not executed within a shell. Required in the first container, where it is
    started once for each rank. In other containers, defaults to the ENTRYPOINT of the image."""
    args: Words | None = None
    """Arguments to the entrypoint."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=256)] | None = None
    """List of environment variables to set in the container. Railwright sets RANK, WORLD_SIZE,
    MASTER_ADDR and the other variables of torchrun in the first container."""
    resources: Resources | None = None
    """Compute resources required by the container. A node of a job must have those of all
    containers of the pod."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=64)] | None = None
    """Pod volumes to mount into the container's filesystem."""
    restart_policy: Annotated[str, Field(max_length=16)] | None = None
    """Restart policy of the container. Always makes an init container a sidecar, which runs beside
    the ranks. Containers that are not init containers only support Never, which is the default."""


class Volume(Part):
    """Volume is a named volume of the pod. All sources of volumes of a pod are supported."""

    model_config = ConfigDict(extra="allow", json_schema_extra=rules(_NAME_RESERVED))

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume, unique within the pod. Must not begin with `railwright`."""


class Toleration(Part):
    """Toleration allows the pods to run on nodes with any taint that matches the triple key, value
    and effect with the matching operator."""

    model_config = ConfigDict(extra="allow")

    key: LabelKey | None = None
    """Taint key that the toleration applies to. If not set, operator must be Exists, which matches
    all keys and values."""
    operator: Literal["Exists", "Equal"] | None = None
    """Relationship of the key to the value: Exists or Equal. Exists matches all values of the
    taint. Defaults to Equal."""
    value: LabelValue | None = None
    """Taint value that the toleration matches. Should be empty if operator is Exists."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect to match: NoSchedule, PreferNoSchedule or NoExecute. If not set, all effects
    match."""


_TEXT: Json = {"type": "string", "maxLength": 253}
_NUMBER: Json = {"type": "integer"}

_RESERVED_IN_POD: Mapping[str, tuple[Json, str]] = {
    "nodeName": (_TEXT, "Railwright chooses the nodes: use nodeSelector to narrow the choice"),
    "schedulerName": (_TEXT, "Railwright schedules the pods itself: remove it"),
    "schedulingGates": (LIST, "Railwright binds a gang's pods at once: set spec.suspend instead"),
    "hostname": (_TEXT, "pods are named by job, role, index and attempt: remove it"),
    "topologySpreadConstraints": (LIST, "Railwright places by the network: use spec.topology"),
    "priorityClassName": (_TEXT, "a gang has one priority: use spec.priorityClassName of the job"),
    "activeDeadlineSeconds": (_NUMBER, "use spec.activeDeadlineSeconds of the job"),
    "priority": (_NUMBER, "a gang has one priority: use spec.priorityClassName of the job"),
    "overhead": (OBJECT, "the API server sets it by the RuntimeClass: remove it"),
    "resources": (OBJECT, "use the resources of its containers"),
    "resourceClaims": (LIST, "claims are not allocated yet: use the resources of its containers"),
}
_RESERVED_IN_METADATA: Mapping[str, tuple[Json, str]] = {
    "ownerReferences": (LIST, "the job owns its pods: remove it"),
    "name": (_TEXT, "pods are named by job, role, index and attempt: remove it"),
    "creationTimestamp": (_TEXT, "the API server sets it: remove it"),
}
"""kubectl writes ``creationTimestamp: null`` into templates; a null is dropped before any rule."""


_COMMAND_GIVEN = Rule(
    "size(self.containers) == 0 || "
    "(has(self.containers[0].command) && size(self.containers[0].command) > 0)",
    'containers[0].command is missing in "%s": Railwright runs it once for each rank and cannot '
    'know an image\'s own entrypoint; for example ["python3", "train.py"]',
    seen=("self.containers[0].name",),
    field=".containers",
)
_NEVER_RESTARTED = Rule(
    "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
    'restartPolicy is "%s", only "Never" works: Railwright restarts whole attempts, see '
    "failurePolicy; remove it",
    seen=("self.restartPolicy",),
    field=".restartPolicy",
)
_RESTARTED = "self.containers.filter(c, has(c.restartPolicy) && c.restartPolicy != 'Never')"
_NONE_RESTARTED = Rule(
    f"{_RESTARTED}.size() == 0",
    'restartPolicy of container "%s" is "%s", only "Never" works: Railwright restarts whole '
    "attempts, see failurePolicy; remove it, or make the container a sidecar of initContainers",
    seen=(f"{_RESTARTED}[0].name", f"{_RESTARTED}[0].restartPolicy"),
    field=".containers",
)


class PodSpec(Part):
    """PodSpec is the specification of the pod of each replica. All fields of a pod are supported,
    except those that Railwright sets itself, which are refused with the reason."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra=reserving(
            _RESERVED_IN_POD, _COMMAND_GIVEN, _NEVER_RESTARTED, _NONE_RESTARTED
        ),
    )

    containers: Annotated[tuple[Container, ...], Field(min_length=1, max_length=8)]
    """List of containers of the pod. The first one runs the ranks; the others run beside it. There
    must be at least one."""
    init_containers: Annotated[tuple[Container, ...], Field(max_length=8)] | None = None
    """List of initialization containers. They run in order before the ranks start."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=64)] | None = None
    """List of volumes that can be mounted by containers of the pod."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = None
    """Selector which must be true for the pod to fit on a node: labels that the node must have."""
    affinity: Affinity | None = None
    """Scheduling constraints of the pod, in addition to nodeSelector. Only
    requiredDuringSchedulingIgnoredDuringExecution of nodeAffinity is supported."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64)] | None = None
    """Tolerations of the pod."""
    runtime_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Name of the RuntimeClass that runs the pod. Its overhead is added to the requests of the
    pod. Defaults to the runtime handler of the node."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=GRACE_MAX_S)] | None = None
    """Duration in seconds that the pod needs to terminate gracefully: processes are killed so long
    after the termination signal. The pod keeps its devices until it has ended. 1 to 3600. Defaults
    to 30."""
    restart_policy: Annotated[str, Field(max_length=16)] | None = None
    """Restart policy of all containers of the pod. Only Never is supported, as Railwright restarts
    whole attempts. Defaults to Never."""


def _ours(field: str) -> Rule:
    """The keys of this map that begin with our group are refused, by name."""
    ours = f"k.startsWith('{names.GROUP}/')"
    return schema.no_key(
        ours,
        f"{field}: %s is reserved, Railwright sets what begins with {names.GROUP}/: remove it",
        seen=("k",),
    )


class TemplateMetadata(Part):
    """TemplateMetadata has labels and annotations of the pods. Railwright adds its own."""

    model_config = ConfigDict(json_schema_extra=reserving(_RESERVED_IN_METADATA))

    labels: Annotated[
        dict[str, LabelValue], Field(max_length=64, json_schema_extra=rules(_ours("labels")))
    ] = Field(default_factory=dict)
    """Map of string keys and values, which are labels of each pod. Keys that begin with
    railwright.dev/ are reserved."""
    annotations: Annotated[
        dict[str, Text], Field(max_length=64, json_schema_extra=rules(_ours("annotations")))
    ] = Field(default_factory=dict)
    """Map of string keys and values, which are annotations of each pod. Keys that begin with
    railwright.dev/ are reserved."""


class PodTemplate(Part):
    """PodTemplate describes the pods of the replicas of a role."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Metadata of the pods: labels and annotations."""
    spec: PodSpec
    """Specification of the pods."""
