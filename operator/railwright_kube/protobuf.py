"""Decode lists in protobuf, which are smaller than JSON and cost the API server less
(docs/decisions/0004).

Messages are made of the classes of ``projections`` and read by the same names; other fields are
skipped. Kubernetes never reuses numbers of fields. A response is four bytes of magic
and an envelope with the object inside (k8s.io/apimachinery, runtime/generated.proto).
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as _Field
from google.protobuf.message import DecodeError
from msgspec import Struct

from railwright_kube import core_v1, projections
from railwright_kube.projections import F, Int32, ListMetadata, Page, Projection, Quantity, Time

ACCEPT = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_PACKAGE = "railwright.watch"
_VALUES = {
    str: _Field.TYPE_STRING,
    bool: _Field.TYPE_BOOL,
    Int32: _Field.TYPE_INT32,
    bytes: _Field.TYPE_BYTES,
    Time: _Field.TYPE_BYTES,
}


class Unknown(Struct):
    """The envelope."""

    raw: Annotated[bytes, 2]


class PodList(Struct):
    """A page of pods."""

    metadata: Annotated[ListMetadata, 1]
    items: Annotated[tuple[core_v1.PodObject, ...], 2]


class NodeList(Struct):
    """A page of nodes."""

    metadata: Annotated[ListMetadata, 1]
    items: Annotated[tuple[core_v1.NodeObject, ...], 2]


def message_class(part: type) -> Any:
    """The message type of a part of an object."""
    name = f"{_PACKAGE}.{part.__name__}"
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


def _declared(*kinds: type) -> FileDescriptorProto:
    file = FileDescriptorProto(name="railwright/watch.proto", package=_PACKAGE, syntax="proto2")
    quantity = file.message_type.add(name=Quantity.__name__)
    _declare(quantity, "string", str, 1)
    for part in dict.fromkeys(each for kind in kinds for each in _parts(kind)):
        message = file.message_type.add(name=part.__name__)
        for field in msgspec.structs.fields(part):
            of, number = typing.get_args(field.type)
            _declare(message, field.name, of, number)
            if of is Int32:
                message.field[-1].default_value = str(field.default)
    return file


def _parts(of: type) -> Iterator[type]:
    """The message types that this one contains, itself included."""
    yield of
    for hint in typing.get_type_hints(of).values():
        for inner in (hint, *typing.get_args(hint)):
            if isinstance(inner, type) and issubclass(inner, Struct):
                yield from _parts(inner)


def _declare(message: DescriptorProto, name: str, of: Any, number: int) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    origin, inner = typing.get_origin(of), typing.get_args(of)
    if origin in (tuple, dict):
        field.label = _Field.LABEL_REPEATED
    one = inner[0] if origin is tuple else of
    if one in _VALUES:
        field.type = _VALUES[one]
        return
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}."
    field.type_name += _entry(message, name, *inner) if origin is dict else one.__name__


def _entry(message: DescriptorProto, name: str, key: type, value: type) -> str:
    """The name of the entry message of a map."""
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    _declare(entry, "key", key, 1)
    _declare(entry, "value", value, 2)
    return f"{message.name}.{entry.name}"


def _page(of: type) -> Callable[[bytes], Page]:
    envelope, listed = message_class(Unknown), message_class(of)

    def decode(body: bytes) -> Page:
        if not body.startswith(MAGIC):
            raise ValueError(f"a list in protobuf begins with {MAGIC!r}, this with {body[:80]!r}")
        try:
            page = listed.FromString(envelope.FromString(body[len(MAGIC) :]).raw)
        except DecodeError as error:
            raise ValueError(f"not a {of.__name__}: {error}") from error
        return Page(int(page.metadata.version), page.metadata.following, page.items)

    return decode


def _projection(kind: str, one: type[F], listed: type) -> Projection[F]:
    return Projection(kind, ACCEPT, _page(listed), lambda item: item, projections.decoder(one))


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_declared(Unknown, PodList, NodeList))

POD = _projection("Pod", core_v1.PodObject, PodList)
NODE = _projection("Node", core_v1.NodeObject, NodeList)
