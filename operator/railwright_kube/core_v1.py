"""The kinds of Kubernetes' core group, as far as their fields are used.

Numbers are those of fields in Kubernetes' generated.proto, for lists in protobuf (``protobuf``).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct, field

from railwright_kube.projections import Identity, Int32, Metadata, Quantities

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""Of a pod: all of its containers have ended."""

NOT_ENDED = Int32(-(2**31))  # where an exit code would be


class Resources(Struct, frozen=True):
    """The resources of a container, or of a pod as a whole."""

    limits: Annotated[Quantities, 1] = {}
    requests: Annotated[Quantities, 2] = {}


class Container(Struct, rename="camel", frozen=True):
    """The spec of a container."""

    name: Annotated[str, 1] = ""
    resources: Annotated[Resources, 8] = Resources()
    restart_policy: Annotated[str, 24] = ""


class PodSpec(Struct, rename="camel", frozen=True):
    """The spec of a pod."""

    containers: Annotated[tuple[Container, ...], 2] = ()
    node_name: Annotated[str, 10] = ""
    init_containers: Annotated[tuple[Container, ...], 20] = ()
    overhead: Annotated[Quantities, 32] = {}
    resources: Annotated[Resources, 40] = Resources()


class Condition(Struct, frozen=True):
    """A condition of a pod or a node."""

    type: Annotated[str, 1] = ""
    status: Annotated[str, 2] = ""
    reason: Annotated[str, 5] = ""


class Waiting(Struct, frozen=True):
    """Why a container of a pod does not start, such as ImagePullBackOff."""

    reason: Annotated[str, 1] = ""
    message: Annotated[str, 2] = ""


class Terminated(Struct, rename="camel", frozen=True):
    """The state of a container that ended."""

    exit_code: Annotated[Int32, 1] = NOT_ENDED
    reason: Annotated[str, 3] = ""
    message: Annotated[str, 4] = ""


class State(Struct, frozen=True):
    """The state of a container: at most one field is set."""

    waiting: Annotated[Waiting, 1] = Waiting()
    terminated: Annotated[Terminated, 3] = Terminated()


class ContainerStatus(Struct, frozen=True):
    """The status of a container."""

    name: Annotated[str, 1] = ""
    state: Annotated[State, 2] = State()
    container_id: Annotated[str, 8] = field(default="", name="containerID")


class PodStatus(Struct, rename="camel", frozen=True):
    """The status of a pod."""

    phase: Annotated[str, 1] = ""
    conditions: Annotated[tuple[Condition, ...], 2] = ()
    reason: Annotated[str, 4] = ""
    container_statuses: Annotated[tuple[ContainerStatus, ...], 8] = ()
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], 10] = ()


class PodObject(Struct, frozen=True):
    """A Pod."""

    metadata: Annotated[Metadata, 1]
    spec: Annotated[PodSpec, 2] = PodSpec()
    status: Annotated[PodStatus, 3] = PodStatus()


class TaintObject(Struct, frozen=True):
    """A taint."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""
    effect: Annotated[str, 3] = ""


class NodeSpec(Struct, frozen=True):
    """The spec of a node."""

    unschedulable: Annotated[bool, 4] = False
    taints: Annotated[tuple[TaintObject, ...], 5] = ()


class NodeAddress(Struct, frozen=True):
    """An IP address, or a name, of a node."""

    address: Annotated[str, 2] = ""


class NodeStatus(Struct, frozen=True):
    """The status of a node."""

    capacity: Annotated[Quantities, 1] = {}
    allocatable: Annotated[Quantities, 2] = {}
    conditions: Annotated[tuple[Condition, ...], 4] = ()
    addresses: Annotated[tuple[NodeAddress, ...], 5] = ()


class NodeObject(Struct, frozen=True):
    """A Node."""

    metadata: Annotated[Metadata, 1]
    spec: Annotated[NodeSpec, 2] = NodeSpec()
    status: Annotated[NodeStatus, 3] = NodeStatus()


class Regarding(Struct, rename="camel", frozen=True):
    """The object of an event: a pod, and the path of a container in it."""

    namespace: str = ""
    uid: str = ""
    field_path: str = ""


class PodEvent(Struct, rename="camel", frozen=True):
    """An event of a pod, of the core group. Unused time fields are null."""

    metadata: Identity
    involved_object: Regarding = Regarding()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None


class Write(Struct, frozen=True):
    """The last write of an object by one manager."""

    time: str = ""


class Stamped(Identity, rename="camel", frozen=True):
    """The identity of an object, and its writes by manager."""

    managed_fields: tuple[Write, ...] = ()


class ConfigMap(Struct, rename="camel", frozen=True):
    """A ConfigMap."""

    metadata: Stamped
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


UNSAID = Condition()


def condition(status: PodStatus | NodeStatus, kind: str) -> Condition:
    """The condition of this type; an empty one if there is none."""
    for each in status.conditions:
        if each.type == kind:
            return each
    return UNSAID
