"""Decode only the fields that are used, from lists, streams and responses.

A pod is 5 to 10 kB of JSON. Pods and nodes are listed in protobuf (``protobuf``), by field numbers
of Kubernetes' generated.proto. Optional fields have a default, never None. ``written`` has amounts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NewType, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from railwright_operator.kube import body_limits
from railwright_operator.kube.client import JSON

Time = NewType("Time", str)
Int32 = NewType("Int32", int)
Quantity = NewType("Quantity", str)
Quantities = dict[str, Quantity]

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The media type of responses with metadata only."""

NOT_ENDED = Int32(-(2**31))  # where an exit code would be


class Owner(Struct, rename="camel", frozen=True):
    """An owner reference."""

    kind: Annotated[str, 1] = ""
    name: Annotated[str, 3] = ""
    uid: Annotated[str, 4] = ""
    api_version: Annotated[str, 5] = ""
    controller: Annotated[bool, 6] = False


class Identity(Struct, rename="camel", frozen=True):
    """The identity and version of an object."""

    uid: Annotated[str, 5]
    name: Annotated[str, 1]
    resource_version: Annotated[str, 6]


class Metadata(Identity, frozen=True):
    """Metadata set by the creator of an object."""

    namespace: Annotated[str, 3] = ""
    deletion_timestamp: Annotated[Time, 9] = Time("")
    labels: Annotated[dict[str, str], 11] = {}
    owner_references: Annotated[tuple[Owner, ...], 13] = ()


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


class ContainerWaiting(Struct, frozen=True):
    """The state of a container that waits."""

    reason: Annotated[str, 1] = ""
    message: Annotated[str, 2] = ""


class Terminated(Struct, rename="camel", frozen=True):
    """The state of a container that ended."""

    exit_code: Annotated[Int32, 1] = NOT_ENDED
    reason: Annotated[str, 3] = ""
    message: Annotated[str, 4] = ""


class State(Struct, frozen=True):
    """The state of a container: at most one field is set."""

    waiting: Annotated[ContainerWaiting, 1] = ContainerWaiting()
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
    pod_ip: Annotated[str, 6] = field(default="", name="podIP")
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


class ListMetadata(Struct, frozen=True):
    """The version of a page, and the token for the next one."""

    version: Annotated[str, 2] = field(name="resourceVersion")
    following: Annotated[str, 3] = field(default="", name="continue")


class Event(Struct, frozen=True):
    """An event of a stream, its object not decoded yet."""

    type: str
    object: msgspec.Raw


class Versioned(Struct, frozen=True):
    """The object of a bookmark."""

    metadata: ListMetadata


class Failure(Struct, frozen=True):
    """The object of an error event."""

    code: int | None = None
    message: str = ""


class ApiObject(Protocol):
    """The metadata of any object."""

    @property
    def metadata(self) -> Identity: ...


class Undeclared(Struct, frozen=True):
    """An object that does not match its declaration, and the error."""

    metadata: Identity
    why: str = ""


F = TypeVar("F", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list, its objects not decoded yet. ``following`` is the token for the next one,
    empty on the last. ``unread`` are objects that were too large, by UID and with their names."""

    version: int
    following: str
    items: Sequence[Any]
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Projection(Generic[F]):
    """How the objects of a kind are decoded: lists in their media type, streams in JSON.

    ``page`` raises ValueError for anything but a list, the others for anything but an object.
    """

    kind: str
    accept: str
    page: Callable[[bytes], Page]
    listed: Callable[[Any], F | Undeclared]
    streamed: Callable[[bytes], F | Undeclared]


class _List(Struct, frozen=True):
    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


def page(body: bytes) -> Page:
    """A page in JSON. Raises ValueError."""
    found = _list(body)
    return Page(int(found.metadata.version), found.metadata.following, found.items or ())


class _Named(Struct, frozen=True):
    metadata: Metadata


class _Names(Struct, frozen=True):
    metadata: ListMetadata
    items: list[_Named] = []


def metadata_page(body: bytes) -> Page:
    """A page with metadata only: all of its objects are unread. Raises ValueError."""
    found = _names(body)
    unread = {
        item.metadata.uid: f"{item.metadata.namespace}/{item.metadata.name}" for item in found.items
    }
    return Page(int(found.metadata.version), found.metadata.following, (), unread)


def decoder(kind: type[F]) -> Callable[[bytes], F | Undeclared]:
    """A decoder of objects of this kind in JSON."""
    decode = msgspec.json.Decoder(kind).decode

    def read(raw: bytes) -> F | Undeclared:
        try:
            return decode(raw)
        except RecursionError:
            return read(body_limits.shallow(raw))
        except msgspec.ValidationError as error:
            return Undeclared(_undeclared(raw).metadata, str(error))

    return read


def of(type_: type[F], kind: str = "") -> Projection[F]:
    """The projection of a kind whose lists are in JSON too."""
    read = decoder(type_)
    return Projection(kind or type_.__name__, JSON, page, read, read)


def converted(raw: Mapping[str, Any], kind: type[F]) -> F:
    """The object from a decoded response. Raises ValueError if it is another kind."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        name = kind.__name__.removesuffix("Object")
        raise ValueError(f"not a {name}: {error}") from error


def event(line: bytes) -> Event:
    """An event of a stream."""
    try:
        return _event(line)
    except RecursionError:
        return _event(body_limits.shallow(line))


def asked(spec: Mapping[str, Any]) -> PodSpec:
    """The requests of a pod spec that a user wrote. The API server reports other errors in it."""
    return PodSpec(
        containers=tuple(map(_container, spec["containers"])),
        init_containers=tuple(map(_container, spec.get("initContainers") or ())),
        overhead=_quantities(spec.get("overhead")),
        resources=_resources(spec),
    )


def written(quantity: Any) -> str:
    """An amount, as a string or a number."""
    return quantity if isinstance(quantity, str) else str(quantity.string)


def _container(raw: Mapping[str, Any]) -> Container:
    policy = raw.get("restartPolicy") or ""
    return Container(resources=_resources(raw), restart_policy=str(policy))


def _resources(raw: Mapping[str, Any]) -> Resources:
    resources = raw.get("resources") or {}
    return Resources(_quantities(resources.get("limits")), _quantities(resources.get("requests")))


def _quantities(raw: Mapping[str, Any] | None) -> Quantities:
    return {name: Quantity(str(amount)) for name, amount in (raw or {}).items()}


_list = msgspec.json.Decoder(_List).decode
_names = msgspec.json.Decoder(_Names).decode
_undeclared = msgspec.json.Decoder(Undeclared).decode
_event = msgspec.json.Decoder(Event).decode
versioned = msgspec.json.Decoder(Versioned).decode
failure = msgspec.json.Decoder(Failure).decode
