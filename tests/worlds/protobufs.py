"""Objects as a real API server sends them in protobuf, made of what JSON would say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from railwright_operator.watch import protobuf
from railwright_operator.watch.excerpts import MESSAGES, QUANTITY, TIME, Field

Raw = Mapping[str, Any]


def page(message: str, items: Sequence[Raw], *, version: str = "9", following: str = "") -> bytes:
    """The reply to a list of Pods or Nodes. Fields that nobody reads are left out."""
    listed = protobuf.message_class(f"{message}List")()
    listed.metadata.resourceVersion = version
    setattr(listed.metadata, "continue", following)
    for raw in items:
        _fill(listed.items.add(), message, raw)
    envelope = protobuf.message_class("Unknown")(raw=listed.SerializeToString())
    return protobuf.MAGIC + bytes(envelope.SerializeToString())


def _fill(found: Any, message: str, raw: Raw) -> None:
    for name, field in MESSAGES[message].items():
        if raw.get(name) is not None:
            _set(found, name, field, raw[name])


def _set(found: Any, name: str, field: Field, value: Any) -> None:
    if field.mapped and field.of == QUANTITY:
        for key, text in value.items():
            getattr(found, name)[key].string = text
    elif field.mapped:
        getattr(found, name).update(value)
    elif field.of == TIME:
        getattr(found, name).SetInParent()
    elif field.of not in MESSAGES:
        setattr(found, name, value)
    elif field.many:
        for each in value:
            _fill(getattr(found, name).add(), field.of, each)
    else:
        getattr(found, name).SetInParent()
        _fill(getattr(found, name), field.of, value)
