"""Lists in protobuf, which are shorter than in JSON and cost the API server less
(docs/decisions/0004).

The messages are made of ``excerpts.MESSAGES``; fields that are not named there are skipped. Numbers
of fields are for good (Kubernetes' API changes). A reply is four bytes of magic and an envelope
with the object inside (k8s.io/apimachinery, runtime/generated.proto).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from railwright_operator.watch import excerpts
from railwright_operator.watch.excerpts import (
    FLAG,
    MESSAGES,
    NUMBER,
    QUANTITY,
    TEXT,
    TIME,
    Excerpt,
    Field,
    Page,
    Raw,
)

ACCEPT = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_PACKAGE = "railwright.watch"
_BYTES = "bytes"
_Proto = descriptor_pb2.FieldDescriptorProto
_VALUES = {
    TEXT: _Proto.TYPE_STRING,
    FLAG: _Proto.TYPE_BOOL,
    NUMBER: _Proto.TYPE_INT32,
    _BYTES: _Proto.TYPE_BYTES,
}
_ENVELOPES: Mapping[str, Mapping[str, Field]] = {
    QUANTITY: {"string": Field(1, TEXT)},
    TIME: {},
    "Unknown": {"raw": Field(2, _BYTES)},
    "ListMetadata": {"resourceVersion": Field(2, TEXT), "continue": Field(3, TEXT)},
    "PodList": {"metadata": Field(1, "ListMetadata"), "items": Field(2, "Pod", many=True)},
    "NodeList": {"metadata": Field(1, "ListMetadata"), "items": Field(2, "Node", many=True)},
}


def _declared() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="railwright/watch.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in {**MESSAGES, **_ENVELOPES}.items():
        message = file.message_type.add(name=name)
        for field_name, field in fields.items():
            _declare(message, field_name, field)
    return file


def _declare(message: descriptor_pb2.DescriptorProto, name: str, field: Field) -> None:
    proto = message.field.add(name=name, number=field.number, label=_Proto.LABEL_OPTIONAL)
    if field.mapped:
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _declare(entry, "key", Field(1, TEXT))
        _declare(entry, "value", Field(2, field.of))
        proto.label = _Proto.LABEL_REPEATED
        proto.type = _Proto.TYPE_MESSAGE
        proto.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
        return
    if field.many:
        proto.label = _Proto.LABEL_REPEATED
    if field.of in _VALUES:
        proto.type = _VALUES[field.of]
    else:
        proto.type = _Proto.TYPE_MESSAGE
        proto.type_name = f".{_PACKAGE}.{field.of}"


def _page(message: str) -> Callable[[bytes], Page]:
    envelope, listed = message_class("Unknown"), message_class(f"{message}List")

    def decode(body: bytes) -> Page:
        if not body.startswith(MAGIC):
            raise ValueError(f"a list in protobuf begins with {MAGIC!r}, this with {body[:80]!r}")
        try:
            page = listed.FromString(envelope.FromString(body[len(MAGIC) :]).raw)
        except DecodeError as error:
            raise ValueError(f"not a {message}List: {error}") from error
        metadata = page.metadata
        return Page(int(metadata.resourceVersion), getattr(metadata, "continue"), page.items)

    return decode


def message_class(message: str) -> Any:
    """A message of ``excerpts.MESSAGES``, or one that such come in."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{message}"))


def _plain(message: str) -> Callable[[Any], Raw]:
    """What is set of such a message, as it would come out of JSON."""
    readers = {name: _reader(field) for name, field in MESSAGES[message].items()}

    def read(found: Any) -> Raw:
        return {field.name: readers[field.name](value) for field, value in found.ListFields()}

    return read


def _reader(field: Field) -> Callable[[Any], Any]:
    if field.mapped and field.of == QUANTITY:
        return lambda found: {key: value.string for key, value in found.items()}
    if field.mapped:
        return dict
    if field.of == TIME:
        return lambda _: "at some time"
    if field.of in _VALUES:
        return lambda found: found
    one = _plain(field.of)
    return (lambda found: [one(each) for each in found]) if field.many else one


def _excerpt(message: str, streamed: Callable[[bytes], Raw]) -> Excerpt:
    return Excerpt(ACCEPT, _page(message), _plain(message), streamed)


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_declared())

POD = _excerpt("Pod", excerpts.pod)
NODE = _excerpt("Node", excerpts.node)
