"""A pydantic model's JSON schema into the structural schema that kube-apiserver takes.

The API server refuses what pydantic writes: references, titles, null as a type, ``const``,
``exclusiveMinimum`` as a number. So references are put in place, an optional field becomes one that
is not required, a constant an enumeration of one, and an exclusive bound the next integer.
"""

from __future__ import annotations

from typing import Any

from railwright_api.schema import Definition, Json, Resource

_DROPPED = frozenset({"title", "$defs", "additionalProperties", "propertyNames"})
_FIRST = ("description", "type", "format", "default", "enum")
_LAST = ("x-kubernetes-validations", "required", "properties", "items", "additionalProperties")
_OWNED_BY_THE_SERVER: Json = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object"},
}


def custom_resource_definition(definition: Definition) -> Json:
    """The CustomResourceDefinition of a kind."""
    group, _, version = definition.model.model_fields["api_version"].default.partition("/")
    served: Json = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": structural_schema(definition.model)},
        "additionalPrinterColumns": [
            {"name": column.name, "type": column.type, "jsonPath": column.path}
            | ({"priority": 1} if column.wide else {})
            for column in definition.columns
        ],
    }
    if definition.has_status:
        served["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{group}"},
        "spec": {
            "group": group,
            "scope": definition.scope,
            "names": _names(definition),
            "versions": [served],
        },
    }


def structural_schema(model: type[Resource]) -> Json:
    """The schema of a kind's objects, with nothing filled in below ``status``."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    result = _converted(schema, schema.get("$defs", {}))
    result["properties"].update(_OWNED_BY_THE_SERVER)
    result["required"] = [name for name in result.get("required", []) if name != "metadata"]
    if "status" in result["properties"]:
        result["properties"]["status"] = _without_defaults(result["properties"]["status"])
    return {name: part for name, part in result.items() if part != []}


def _names(definition: Definition) -> Json:
    parts: Json = {
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": definition.plural,
        "singular": definition.kind.lower(),
        "shortNames": list(definition.short_names),
        "categories": list(definition.categories),
    }
    return {name: part for name, part in parts.items() if part}


def _converted(schema: Json, definitions: Json) -> Json:
    schema = _resolved(schema, definitions)
    result = {name: part for name, part in schema.items() if name not in _DROPPED}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in schema:
        result["properties"] = {
            name: _converted(part, definitions) for name, part in schema["properties"].items()
        }
    if "items" in schema:
        result["items"] = _converted(schema["items"], definitions)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        result["additionalProperties"] = _converted(extra, definitions)
    elif extra is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "exclusiveMaximum" in result:
        result["maximum"] = result.pop("exclusiveMaximum") - 1
    if "exclusiveMinimum" in result:
        result["minimum"] = result.pop("exclusiveMinimum") + 1
    return _ordered(_with_stored_default(result))


def _resolved(schema: Json, definitions: Json) -> Json:
    """The schema with its reference, or its only alternative to null, put in place."""
    while True:
        around = {name: part for name, part in schema.items() if name not in ("$ref", "anyOf")}
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rpartition("/")[2]] | around
        elif "anyOf" in schema:
            (only,) = (part for part in schema["anyOf"] if part != {"type": "null"})
            schema = only | around
        else:
            return schema


def _with_stored_default(schema: Json) -> Json:
    """A default that the API server may fill in; the absence of a list or a value is none."""
    default = _without_nulls(schema.pop("default", None))
    if default is not None and default != []:
        schema["default"] = default
    return schema


def _ordered(schema: Json) -> Json:
    """Words and type first, then bounds, what is inside last: as a person would write it."""
    first = [name for name in _FIRST if name in schema]
    last = [name for name in _LAST if name in schema]
    middle = sorted(schema.keys() - {*_FIRST, *_LAST})
    return {name: schema[name] for name in (*first, *middle, *last)}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if part is not None}
    return value


def _without_defaults(schema: Json) -> Json:
    result = {name: part for name, part in schema.items() if name != "default"}
    if "properties" in result:
        result["properties"] = {
            name: _without_defaults(part) for name, part in result["properties"].items()
        }
    if "items" in result:
        result["items"] = _without_defaults(result["items"])
    return result
