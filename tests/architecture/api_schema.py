"""The schemas of the kinds as reference pages show them: fields by their paths, limits in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railwright_api.schema import Definition, Json
from railwright_testbed.structural import structural_schema

OF_EVERY_OBJECT = frozenset({"apiVersion", "kind", "metadata"})
POD_TEMPLATE = "spec.roles[].template"
"""What it may have is what a pod may have: its fields are not on the page."""

_WORDS = re.compile(r"'((?:[^'\\]|\\.)*)'\.format\(")
_FORMATTED = re.compile(r"%[sd]")


@dataclass(frozen=True, slots=True)
class Field:
    """One field: ``path`` is that from the object, with ``[]`` for the items of a list and ``{}``
    for the values of a map. ``inner`` is the schema of what is in it."""

    path: str
    schema: Json
    required: bool

    @property
    def name(self) -> str:
        """Its name in the object around it."""
        return self.path.rpartition(".")[2]

    @property
    def description(self) -> str:
        """The text of the model."""
        return str(self.schema.get("description") or self.inner.get("description", ""))

    @property
    def default(self) -> Any:
        """What the API server sets; None if nothing."""
        return self.schema.get("default")

    @property
    def inner(self) -> Json:
        """The schema of an item of a list or of a value of a map; otherwise its own."""
        return _inner(self.schema)[1]

    @property
    def inner_path(self) -> str:
        """The path of what has ``inner``."""
        return self.path + _inner(self.schema)[0]

    @property
    def is_object(self) -> bool:
        """Whether its own fields are known."""
        return bool(self.inner.get("properties"))

    @property
    def type(self) -> str:
        """Its type in words."""
        one = type_of(self.inner)
        if "items" in self.schema:
            return f"array of {one}s"
        return f"map of {one}s" if self.inner is not self.schema else one


def schema_of(definition: Definition) -> Json:
    """The schema of an object of this kind."""
    return structural_schema(definition.model)


def fields_of(definition: Definition) -> Iterator[tuple[str, Field]]:
    """All fields of a kind by their paths, each before what is in it; not those of a pod."""

    def below(path: str, schema: Json) -> Iterator[tuple[str, Field]]:
        for field in children(path, schema):
            yield field.path, field
            if field.is_object and field.path != POD_TEMPLATE:
                yield from below(field.inner_path, field.inner)

    yield from below("", schema_of(definition))


def children(path: str, schema: Json) -> list[Field]:
    """The fields of an object at this path."""
    return [
        Field(f"{path}.{name}" if path else name, part, name in schema.get("required", ()))
        for name, part in schema.get("properties", {}).items()
        if path or name not in OF_EVERY_OBJECT
    ]


def anchor(path: str) -> str:
    """Where the section of an object with fields is on the page of its kind."""
    return re.sub(r"[^\w-]", "", path.lower())


def type_of(schema: Json) -> str:
    """The type of one value in words."""
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    return "time" if schema.get("format") == "date-time" else str(schema.get("type", "object"))


def limits(schema: Json) -> list[str]:
    """What a value must be, from the schema of the field and of its items."""
    found = [*_of_collection(schema)]
    inner = _inner(schema)[1]
    found += [f"one of {', '.join(_named(inner['enum']))}"] if "enum" in inner else []
    found += _between(inner, "minimum", "maximum", "")
    found += _between(inner, "minLength", "maxLength", " characters")
    found += [f"pattern `{inner['pattern']}`"] if "pattern" in inner else []
    return found


def messages(schema: Json) -> list[str]:
    """What the API server answers to an object that breaks a rule; ``…`` for what it has seen."""
    return [_message(rule) for rule in schema.get("x-kubernetes-validations", ())]


def messages_below(schema: Json) -> Iterator[str]:
    """Those of the whole schema, each once."""
    seen: dict[str, None] = {}
    for part in _walk(schema):
        seen |= dict.fromkeys(messages(part))
    yield from seen


def _walk(schema: Json) -> Iterator[Json]:
    yield schema
    nested = [*schema.get("properties", {}).values()]
    nested += [schema[name] for name in ("items", "additionalProperties") if name in schema]
    for part in nested:
        if isinstance(part, Mapping):
            yield from _walk(dict(part))


def _inner(schema: Json) -> tuple[str, Json]:
    if isinstance(schema.get("items"), dict):
        return "[]", schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        return "{}", schema["additionalProperties"]
    return "", schema


def _of_collection(schema: Json) -> Iterator[str]:
    yield from _between(schema, "minItems", "maxItems", " items")
    yield from _between(schema, "minProperties", "maxProperties", " entries")
    if keys := schema.get("x-kubernetes-list-map-keys"):
        yield f"each {' and '.join(_named(keys))} once"


def _between(schema: Json, low: str, high: str, unit: str) -> list[str]:
    least, most = schema.get(low), schema.get(high)
    match least, most:
        case None, None:
            return []
        case None, _:
            return [f"at most {most}{unit}"]
        case _, None:
            return [f"at least {least}{unit}"]
    return [f"{least} to {most}{unit}"]


def _named(values: list[Any]) -> list[str]:
    return [f"`{value}`" if value != "" else "an empty string" for value in values]


def _message(rule: Json) -> str:
    expression = rule.get("messageExpression")
    if expression is None:
        return str(rule["message"])
    # A rule on the keys of a map has the words inside another expression.
    words = max(_WORDS.findall(expression), key=len)
    return _FORMATTED.sub("…", re.sub(r"\\(.)", r"\1", words))
