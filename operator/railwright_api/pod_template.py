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
    """An environment variable; valueFrom works as in any pod."""

    model_config = ConfigDict(extra="allow", json_schema_extra=rules(_ENV_RESERVED))

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable. Those that tell a rank its place are set by Railwright."""
    value: Text | None = None
    """Value of the variable."""


class Resources(Part):
    """Compute resources of a container."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=rules(_DEVICES_EQUAL, _PAGES_WITH_MEMORY)
    )

    requests: Amounts | None = None
    """Reserved for this container."""
    limits: Amounts | None = None
    """The most this container may use."""


class VolumeMount(Part):
    """A volume inside the container; every field of a pod's volumeMounts works."""

    model_config = ConfigDict(extra="allow")

    name: Name
    """Which volume."""
    mount_path: Annotated[str, Field(max_length=4096)]
    """Where it appears."""


_RESERVED_IN_CONTAINER: Mapping[str, tuple[Json, str]] = {
    "restartPolicyRules": (LIST, "Railwright restarts whole attempts: see spec.failurePolicy"),
}


class Container(Part):
    """A container; every other field of a pod's container works as it does there."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra=reserving(_RESERVED_IN_CONTAINER, _NAME_RESERVED)
    )

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the container."""
    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Image to run. In the first container it needs the shell /bin/sh and nothing else."""
    command: Words | None = None
    """What to run, without a shell. The first container needs it: one process for each rank."""
    args: Words | None = None
    """Arguments after the command."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=256)] | None = None
    """Environment. RANK, WORLD_SIZE, MASTER_ADDR and the like are set by Railwright."""
    resources: Resources | None = None
    """Compute resources of the container. The pod requests the sum over its containers."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=64)] | None = None
    """Volumes to mount."""
    restart_policy: Annotated[str, Field(max_length=16)] | None = None
    """Always, of an init container, makes it a sidecar that runs beside the ranks. Never, or not
    set, for other containers."""


class Volume(Part):
    """A volume; every source that a pod may use works."""

    model_config = ConfigDict(extra="allow", json_schema_extra=rules(_NAME_RESERVED))

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume."""


class Toleration(Part):
    """A taint the job's pods may live with."""

    model_config = ConfigDict(extra="allow")

    key: LabelKey | None = None
    """Taint key; none with operator Exists tolerates every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists matches any value, Equal (the default) only this one."""
    value: LabelValue | None = None
    """Taint value for Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; none means every effect."""


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
    """The pod of each replica; every field of a pod that is not reserved works as it does there."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra=reserving(
            _RESERVED_IN_POD, _COMMAND_GIVEN, _NEVER_RESTARTED, _NONE_RESTARTED
        ),
    )

    containers: Annotated[tuple[Container, ...], Field(min_length=1, max_length=8)]
    """The first container runs the ranks; the others run beside it."""
    init_containers: Annotated[tuple[Container, ...], Field(max_length=8)] | None = None
    """Run before the ranks start."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=64)] | None = None
    """Volumes that containers may mount."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = None
    """Only nodes with all of these labels are used."""
    affinity: Affinity | None = None
    """Which nodes are used, beside nodeSelector. Only required terms of nodeAffinity are
    supported."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64)] | None = None
    """Taints of nodes that these pods may live with."""
    runtime_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Name of the RuntimeClass of the pods. Its overhead counts as requested by each of them."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=GRACE_MAX_S)] | None = None
    """Seconds between the signal to end and the kill; 30 if not set. A pod keeps its devices for as
    long."""
    restart_policy: Annotated[str, Field(max_length=16)] | None = None
    """Never, or not set: Railwright restarts whole attempts."""


def _ours(field: str) -> Rule:
    """The keys of this map that begin with our group are refused, by name."""
    ours = f"k.startsWith('{names.GROUP}/')"
    return schema.no_key(
        ours,
        f"{field}: %s is reserved, Railwright sets what begins with {names.GROUP}/: remove it",
        seen=("k",),
    )


class TemplateMetadata(Part):
    """Labels and annotations of each pod, besides Railwright's own."""

    model_config = ConfigDict(json_schema_extra=reserving(_RESERVED_IN_METADATA))

    labels: Annotated[
        dict[str, LabelValue], Field(max_length=64, json_schema_extra=rules(_ours("labels")))
    ] = Field(default_factory=dict)
    """Labels of each pod."""
    annotations: Annotated[
        dict[str, Text], Field(max_length=64, json_schema_extra=rules(_ours("annotations")))
    ] = Field(default_factory=dict)
    """Annotations of each pod."""


class PodTemplate(Part):
    """The pod that runs for each replica of a role."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of each pod."""
    spec: PodSpec
    """The pod of each replica."""
