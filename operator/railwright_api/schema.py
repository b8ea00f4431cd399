"""What the kinds are written with: a model, a rule the API server checks, a definition of a kind.

A model ignores fields it does not know when it reads, and an object of the API server that fits the
generated schema always parses. ``extra="allow"`` in a model's config becomes
``x-kubernetes-preserve-unknown-fields``. A ``default_factory`` is known to Python only; a plain
default is filled in by the API server, except below ``status``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from railwright_api import names

Json = dict[str, Any]
Read = TypeVar("Read", bound=BaseModel)

NODES_MAX = 16_384
PROCESSES_MAX = 64
RANKS_MAX = NODES_MAX * PROCESSES_MAX
ROLES_MAX = 8
ROLE_NAME_LENGTH_MAX = 32

LABEL_KEY_LENGTH_MAX = 317
LABEL_VALUE_LENGTH_MAX = 63
LabelKey = Annotated[str, Field(max_length=LABEL_KEY_LENGTH_MAX)]
LabelValue = Annotated[str, Field(max_length=LABEL_VALUE_LENGTH_MAX)]
OBJECT: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
LIST: Json = {"type": "array", "maxItems": 64, "items": OBJECT}

NAME_LENGTH_MAX = 253
Name = Annotated[str, Field(max_length=NAME_LENGTH_MAX)]
Sentence = Annotated[str, Field(max_length=4096)]
Code = Annotated[str, Field(max_length=128)]
"""A word of a closed set in CamelCase, for programs."""
Count = Annotated[int, Field(ge=0)]
NodeList = Annotated[tuple[Name, ...], Field(max_length=NODES_MAX)]
Time = AwareDatetime

Decimal = Annotated[str, Field(max_length=32, pattern=r"^-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?$")]
"""An exact decimal number as text: Kubernetes objects have no floats."""

NonNegativeDecimal = Annotated[
    str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?$")
]
"""The same of a number that cannot be negative."""

QUANTITY_LENGTH_MAX = 20
Quantity = Annotated[
    int | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": QUANTITY_LENGTH_MAX}),
]


class Part(BaseModel):
    """One object inside a kind: camelCase outside, snake_case inside, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        # What users write stays out of messages and logs: it may hold their secrets.
        hide_input_in_errors=True,
    )


class Metadata(Part):
    """What a reader needs of an object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None


class Resource(Part):
    """The fields that every kind starts with; the API server owns their schema."""

    api_version: str = names.API_VERSION
    kind: str
    metadata: Metadata


def read(model: type[Read], raw: Json) -> Read:
    """The object as its model; a value that an enum of the model does not have is left out.

    A later version wrote it: the field's default holds, or that of the field around it. Raises
    ValidationError for anything else that does not fit.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        places = [each["loc"] for each in error.errors() if each["type"] == "literal_error"]
        if len(places) < error.error_count():
            raise
        readable = copy.deepcopy(raw)
        for *parents, name in places:
            holder: Any = readable
            for parent in parents:
                holder = holder[parent]
            del holder[name]
        return model.model_validate(readable)


def field_names(model: type[Part]) -> frozenset[str]:
    """The fields of a model as objects spell them."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule of the API server.

    ``field`` is the path below the object that the error is reported at, such as ``.roles``.
    The words are fixed (``message``), or have a ``%s`` or ``%d`` for each CEL expression in
    ``seen``: the API server estimates the cost of ``format`` by the words alone, while a sum of
    strings of unknown length exceeds its budget.
    """

    expression: str
    message: str
    seen: tuple[str, ...] = ()
    field: str = ""

    def rendered(self) -> Json:
        """The rule as it stands in a schema."""
        parts = {"rule": self.expression}
        if self.seen:
            words = self.message.replace("\\", "\\\\").replace("'", "\\'")
            parts["messageExpression"] = f"'{words}'.format([{', '.join(self.seen)}])"
        else:
            parts["message"] = self.message
        if self.field:
            parts["fieldPath"] = self.field
        return parts


def no_key(broken: str, message: str, *, seen: tuple[str, ...]) -> Rule:
    """A rule on a map: ``broken``, a CEL expression of a key ``k``, holds for none of its keys.

    The message is about the first key that it holds for; ``seen`` may use ``k``.
    """
    words = Rule(broken, message, seen=seen).rendered()["messageExpression"]
    first = f"[self.filter(k, {broken})[0]].map(k, {words})[0]"
    return Rule(f"self.all(k, !({broken}))", "%s", seen=(first,))


def rules(*given: Rule) -> Json:
    """``json_schema_extra`` of a model or a field that these rules guard."""
    return {"x-kubernetes-validations": [rule.rendered() for rule in given]}


def reserving(reserved: Mapping[str, tuple[Json, str]], *given: Rule) -> Callable[[Json], None]:
    """``json_schema_extra`` of a model with these rules and these reserved fields: each has its
    schema, and what to do instead, with which the API server refuses it."""
    refusals = [
        Rule(f"!has(self.{name})", f"{name} is reserved: {why}", field=f".{name}")
        for name, (_, why) in reserved.items()
    ]

    def extend(schema: Json) -> None:
        schema.update(rules(*given, *refusals))
        for name, (shape, why) in reserved.items():
            schema["properties"][name] = shape | {"description": f"Reserved: {why}."}

    return extend


def singleton(kind: str) -> Json:
    """``json_schema_extra`` of a kind of which a cluster has one object."""
    rule = Rule(
        f"self.metadata.name == '{names.SINGLETON}'",
        f'metadata.name: "%s" is not "{names.SINGLETON}": a cluster has one {kind}',
        seen=("self.metadata.name",),
    )
    return rules(rule)


def name_length(most: int, why: str) -> Rule:
    """A rule on the length of an object's name."""
    return Rule(
        f"self.metadata.name.size() <= {most}",
        f'metadata.name: "%s" has %d characters, at most {most}: {why}',
        seen=("self.metadata.name", "self.metadata.name.size()"),
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; ``wide`` shows it only with ``-o wide``."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "date"] = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind as the cluster knows it."""

    model: type[Resource]
    plural: str
    scope: Literal["Namespaced", "Cluster"]
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    """Paths of fields that field selectors may name, beside ``metadata.name`` and ``namespace``."""
    has_status: bool = True

    @property
    def kind(self) -> str:
        """The kind's name in CamelCase."""
        return self.model.__name__


AGE = Column("Age", ".metadata.creationTimestamp", "date")
