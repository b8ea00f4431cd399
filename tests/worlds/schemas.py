"""What kube-apiserver would refuse of a value: the bounds of a generated schema, checked."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
LOWEST = ("minimum", "minLength", "minItems")
HIGHEST = ("maximum", "maxLength", "maxItems")


def refusals(schema: Json, value: Any, path: str = "") -> Iterator[str]:
    """One line for each bound that is broken; a field that the schema does not have is one."""
    if not isinstance(value, TYPES[schema["type"]]):
        yield f"{path} is {type(value).__name__}, expected {schema['type']}"
        return
    yield from (f"{path} breaks {bound}: {value!r:.80}" for bound in _broken(schema, value))
    if isinstance(value, dict):
        yield from _of_object(schema, value, path)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from refusals(schema["items"], item, f"{path}[{number}]")


def _of_object(schema: Json, value: Json, path: str) -> Iterator[str]:
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}.{name} is missing"
    for name, item in value.items():
        if name not in schema["properties"]:
            yield f"{path}.{name} is no field"
        else:
            yield from refusals(schema["properties"][name], item, f"{path}.{name}")


def _broken(schema: Json, value: Any) -> Iterator[str]:
    size = len(value) if isinstance(value, str | list) else value
    yield from (each for each in LOWEST if each in schema and size < schema[each])
    yield from (each for each in HIGHEST if each in schema and size > schema[each])
    if "enum" in schema and value not in schema["enum"]:
        yield "enum"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield "pattern"
    if schema.get("format") == "date-time":
        datetime.datetime.fromisoformat(value)
