"""Objects as a real API server sends them in protobuf, made of what JSON would say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright_operator.watch import excerpts, protobuf
from railwright_operator.watch.protobuf import NodeList, PodList, Unknown

Raw = Mapping[str, Any]


def page(of: type[PodList | NodeList], items: Sequence[Raw]) -> bytes:
    """The reply to a list of Pods or Nodes. Fields that nobody reads are left out."""
    listed = protobuf.message_class(of)()
    _fill(listed.metadata, {"resourceVersion": "9"})
    for raw in items:
        _fill(listed.items.add(), raw)
    envelope = protobuf.message_class(Unknown)(raw=listed.SerializeToString())
    return protobuf.MAGIC + bytes(envelope.SerializeToString())


def _fill(found: Any, raw: Raw) -> None:
    part = getattr(excerpts, found.DESCRIPTOR.name)
    for field in msgspec.structs.fields(part):
        if (value := raw.get(field.encode_name)) is not None:
            _set(found, field.name, value)


def _set(found: Any, name: str, value: Any) -> None:
    field = found.DESCRIPTOR.fields_by_name[name]
    inner = field.message_type
    if inner is None:
        setattr(found, name, value.encode() if field.type == field.TYPE_BYTES else value)
    elif not inner.GetOptions().map_entry:
        _fill_each(getattr(found, name), value)
    elif inner.fields_by_name["value"].message_type is None:
        getattr(found, name).update(value)
    else:
        for key, written in value.items():
            getattr(found, name)[key].string = written


def _fill_each(found: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        found.SetInParent()
        _fill(found, value)
        return
    for each in value:
        _fill(found.add(), each)
