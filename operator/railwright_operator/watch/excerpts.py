"""What is decoded of lists and streams: of pods and nodes only what ``records`` reads.

A pod is 5 to 10 kB of JSON, much of it about who manages which field. What nobody reads is skipped
without being made into objects. An object that is not as declared here is decoded whole, so that
whoever reads it can say what is wrong, and of which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from railwright_operator.kube.client import JSON

Raw = dict[str, Any]

TEXT, FLAG, NUMBER, QUANTITY, TIME = "text", "flag", "number", "quantity", "time"


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its number in Kubernetes' generated.proto, and what it holds: a kind of value or
    a message named here; ``many`` of them in a list, or ``mapped`` by text."""

    number: int
    of: str
    many: bool = False
    mapped: bool = False


MESSAGES: Mapping[str, Mapping[str, Field]] = {
    "Owner": {
        "kind": Field(1, TEXT),
        "name": Field(3, TEXT),
        "uid": Field(4, TEXT),
        "apiVersion": Field(5, TEXT),
        "controller": Field(6, FLAG),
    },
    "Metadata": {
        "name": Field(1, TEXT),
        "namespace": Field(3, TEXT),
        "uid": Field(5, TEXT),
        "resourceVersion": Field(6, TEXT),
        "deletionTimestamp": Field(9, TIME),
        "labels": Field(11, TEXT, mapped=True),
        "ownerReferences": Field(13, "Owner", many=True),
    },
    "Resources": {
        "limits": Field(1, QUANTITY, mapped=True),
        "requests": Field(2, QUANTITY, mapped=True),
    },
    "Container": {
        "name": Field(1, TEXT),
        "resources": Field(8, "Resources"),
        "restartPolicy": Field(24, TEXT),
    },
    "PodSpec": {
        "containers": Field(2, "Container", many=True),
        "nodeName": Field(10, TEXT),
        "initContainers": Field(20, "Container", many=True),
        "overhead": Field(32, QUANTITY, mapped=True),
        "resources": Field(40, "Resources"),
    },
    "Condition": {
        "type": Field(1, TEXT),
        "status": Field(2, TEXT),
        "reason": Field(5, TEXT),
    },
    "Waiting": {"reason": Field(1, TEXT), "message": Field(2, TEXT)},
    "Terminated": {
        "exitCode": Field(1, NUMBER),
        "reason": Field(3, TEXT),
        "message": Field(4, TEXT),
    },
    "State": {"waiting": Field(1, "Waiting"), "terminated": Field(3, "Terminated")},
    "ContainerStatus": {"name": Field(1, TEXT), "state": Field(2, "State")},
    "PodStatus": {
        "phase": Field(1, TEXT),
        "conditions": Field(2, "Condition", many=True),
        "reason": Field(4, TEXT),
        "podIP": Field(6, TEXT),
        "containerStatuses": Field(8, "ContainerStatus", many=True),
        "initContainerStatuses": Field(10, "ContainerStatus", many=True),
    },
    "Pod": {
        "metadata": Field(1, "Metadata"),
        "spec": Field(2, "PodSpec"),
        "status": Field(3, "PodStatus"),
    },
    "Taint": {"key": Field(1, TEXT), "value": Field(2, TEXT), "effect": Field(3, TEXT)},
    "NodeSpec": {"unschedulable": Field(4, FLAG), "taints": Field(5, "Taint", many=True)},
    "NodeStatus": {
        "allocatable": Field(2, QUANTITY, mapped=True),
        "conditions": Field(4, "Condition", many=True),
    },
    "Node": {
        "metadata": Field(1, "Metadata"),
        "spec": Field(2, "NodeSpec"),
        "status": Field(3, "NodeStatus"),
    },
}

_VALUES: Mapping[str, type] = {TEXT: str, FLAG: bool, NUMBER: int, QUANTITY: str, TIME: str}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list, its objects not read yet. ``following`` asks for the next one; empty on the
    last."""

    version: int
    following: str
    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """How the objects of a kind are read: lists in a format to ask for, streams in JSON.

    ``page`` raises ValueError for what is no list.
    """

    accept: str
    page: Callable[[bytes], Page]
    listed: Callable[[Any], Raw]
    streamed: Callable[[bytes], Raw]


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion")
    following: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """An event of a stream, its object not decoded yet."""

    type: str
    object: msgspec.Raw


_list = msgspec.json.Decoder(_List).decode
event = msgspec.json.Decoder(Event).decode


def whole(raw: bytes) -> Raw:
    """An object with all that it has. Raises DecodeError when it is none."""
    return msgspec.json.decode(raw, type=dict[str, Any])


def page(body: bytes) -> Page:
    """A page in JSON. Raises ValueError."""
    try:
        found = _list(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a list: {error}") from error
    return Page(int(found.metadata.version), found.metadata.following, found.items or ())


WHOLE = Excerpt(JSON, page, whole, whole)
"""All that an object has."""


def _decoder(message: str) -> Callable[[bytes], Raw]:
    excerpt: msgspec.json.Decoder[Raw] = msgspec.json.Decoder(_type(message))

    def decode(raw: bytes) -> Raw:
        try:
            return excerpt.decode(raw)
        except msgspec.ValidationError:
            return whole(raw)

    return decode


def _type(message: str) -> Any:
    fields = {name: _type_of(field) for name, field in MESSAGES[message].items()}
    return TypedDict(message, fields, total=False)  # type: ignore[operator]


def _type_of(field: Field) -> Any:
    one = _VALUES[field.of] if field.of in _VALUES else _type(field.of)
    if field.mapped:
        return dict[str, one]  # type: ignore[valid-type]
    return list[one] if field.many else one  # type: ignore[valid-type]


pod = _decoder("Pod")
node = _decoder("Node")
