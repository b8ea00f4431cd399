"""What is decoded of lists and streams: of pods and nodes only what ``records`` reads.

A pod is 5 to 10 kB of JSON, half of it about who manages which field. What nobody reads is skipped
without being made into objects: a list of 50,000 pods then costs a third. An object that is not as
declared here is decoded whole, so that whoever reads it can say what is wrong, and of which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import msgspec

Raw = dict[str, Any]
Excerpt = Callable[[bytes], Raw]


class _Owner(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool


class _Metadata(TypedDict, total=False):
    uid: str
    namespace: str
    name: str
    resourceVersion: str
    labels: dict[str, str]
    ownerReferences: list[_Owner]
    deletionTimestamp: str


class _Resources(TypedDict, total=False):
    requests: dict[str, str]
    limits: dict[str, str]


class _Container(TypedDict, total=False):
    name: str
    restartPolicy: str
    resources: _Resources


class _PodSpec(TypedDict, total=False):
    nodeName: str
    containers: list[_Container]
    initContainers: list[_Container]
    resources: _Resources
    overhead: dict[str, str]


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str


class _Terminated(TypedDict, total=False):
    exitCode: int
    reason: str
    message: str


class _Waiting(TypedDict, total=False):
    reason: str
    message: str


class _State(TypedDict, total=False):
    terminated: _Terminated
    waiting: _Waiting


class _ContainerStatus(TypedDict, total=False):
    name: str
    state: _State


class _PodStatus(TypedDict, total=False):
    phase: str
    reason: str
    podIP: str
    conditions: list[_Condition]
    containerStatuses: list[_ContainerStatus]
    initContainerStatuses: list[_ContainerStatus]


class _Pod(TypedDict, total=False):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _Taint(TypedDict, total=False):
    key: str
    value: str
    effect: str


class _NodeSpec(TypedDict, total=False):
    unschedulable: bool
    taints: list[_Taint]


class _NodeStatus(TypedDict, total=False):
    allocatable: dict[str, str]
    conditions: list[_Condition]


class _Node(TypedDict, total=False):
    metadata: _Metadata
    spec: _NodeSpec
    status: _NodeStatus


class PageMetadata(msgspec.Struct):
    """``following`` asks for the next page; empty on the last one."""

    version: str = msgspec.field(name="resourceVersion")
    following: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """A page of a list, its objects not decoded yet."""

    metadata: PageMetadata
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """An event of a stream, its object not decoded yet."""

    type: str
    object: msgspec.Raw


page = msgspec.json.Decoder(Page).decode
event = msgspec.json.Decoder(Event).decode


def _decoder(declared: type) -> Excerpt:
    excerpt: msgspec.json.Decoder[Raw] = msgspec.json.Decoder(declared)

    def decode(raw: bytes) -> Raw:
        try:
            return excerpt.decode(raw)
        except msgspec.ValidationError:
            return whole(raw)

    return decode


def whole(raw: bytes) -> Raw:
    """An object with all that it has. Raises DecodeError when it is none."""
    return msgspec.json.decode(raw, type=dict[str, Any])


pod = _decoder(_Pod)
node = _decoder(_Node)
