"""Decode only the fields that are used, from lists, streams and responses.

A pod is 5 to 10 kB of JSON. Pods and nodes are listed in protobuf (``protobuf``), by field numbers
of Kubernetes' generated.proto. Optional fields have a default, never None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NewType, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from railwright_kube import body_limits
from railwright_kube.transport import JSON

Time = NewType("Time", str)
Int32 = NewType("Int32", int)
Quantity = NewType("Quantity", str)
Quantities = dict[str, Quantity]

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The media type of responses with metadata only."""


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


_list = msgspec.json.Decoder(_List).decode
_names = msgspec.json.Decoder(_Names).decode
_undeclared = msgspec.json.Decoder(Undeclared).decode
_event = msgspec.json.Decoder(Event).decode
versioned = msgspec.json.Decoder(Versioned).decode
failure = msgspec.json.Decoder(Failure).decode
