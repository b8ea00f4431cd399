"""Lists of pods and nodes in protobuf, of the fields that ``railwright_kube.protobuf`` declares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fixtures import protobufs
from railwright_kube import core_v1, projections, protobuf

Json = dict[str, Any]

MESSAGES = {"Pod": core_v1.PodObject, "Node": core_v1.NodeObject}
"""By kind; those of other kinds are not declared."""

_METADATA, _ITEMS = 1, 2
_RAW = 2


def encode(kind: str, found: Json) -> bytes:
    """The message of a pod or a node."""
    return protobufs.encode(MESSAGES[kind], found)


def page(version: int, following: str, items: Iterable[bytes]) -> bytes:
    """The response with a page of encoded objects; ``following`` is the token for the next one."""
    metadata = {"resourceVersion": str(version), "continue": following}
    listed = _field(_METADATA, protobufs.encode(projections.ListMetadata, metadata))
    listed += b"".join(_field(_ITEMS, item) for item in items)
    return protobuf.MAGIC + _field(_RAW, listed)


def _field(number: int, content: bytes) -> bytes:
    """A field of a message, with its length before its content."""
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + content
