"""A pydantic model's JSON schema into the structural schema that kube-apiserver takes.

The API server refuses what pydantic writes: references, titles, null as a type, ``const``,
``exclusiveMinimum`` as a number. So references are put in place, an optional field becomes one that
is not required, a constant an enumeration of one, and an exclusive bound the next integer.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from railwright_api.schema import Definition, Json, Resource

_DROPPED = frozenset({"title", "$defs", "additionalProperties", "propertyNames"})
_FIRST = ("description", "type", "format", "default", "enum")
_LAST = ("x-kubernetes-validations", "required", "properties", "items", "additionalProperties")
_BOUNDS = (("exclusiveMaximum", "maximum", -1), ("exclusiveMinimum", "minimum", 1))
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
    if definition.selectable:
        served["selectableFields"] = [{"jsonPath": path} for path in definition.selectable]
    if definition.has_status:
        served["subresources"] = {"status": {}}
    names = {
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": definition.plural,
        "singular": definition.kind.lower(),
        "shortNames": list(definition.short_names),
        "categories": list(definition.categories),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{definition.plural}.{group}",
            "labels": {"app.kubernetes.io/version": metadata.version("railwright")},
        },
        "spec": {
            "group": group,
            "scope": definition.scope,
            "names": {name: part for name, part in names.items() if part},
            "versions": [served],
        },
    }


def structural_schema(model: type[Resource]) -> Json:
    """The schema of a kind's objects; the API server sets no default below ``status``."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    result = _converted(schema, schema.get("$defs", {}), has_defaults=True)
    result["properties"].update(_OWNED_BY_THE_SERVER)
    result["required"] = [name for name in result.get("required", []) if name != "metadata"]
    return {name: part for name, part in result.items() if part != []}


def _converted(schema: Json, definitions: Json, *, has_defaults: bool) -> Json:
    schema = _resolved(schema, definitions)
    result = {name: part for name, part in schema.items() if name not in _DROPPED}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in schema:
        result["properties"] = {
            name: _converted(part, definitions, has_defaults=has_defaults and name != "status")
            for name, part in schema["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            result[name] = _converted(schema[name], definitions, has_defaults=has_defaults)
    if schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "const" in result:
        result["enum"] = [result.pop("const")]
    for exclusive, bound, step in _BOUNDS:
        if exclusive in result:
            result[bound] = result.pop(exclusive) + step
    default = _without_nulls(result.pop("default", None))
    # The absence of a list or a value is no default.
    if has_defaults and default not in (None, []):
        result["default"] = default
    return _ordered(result)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if part is not None}
    return value


def _resolved(schema: Json, definitions: Json) -> Json:
    """The schema with its reference, or its only alternative to null, put in place."""
    while "$ref" in schema or "anyOf" in schema:
        around = {name: part for name, part in schema.items() if name not in ("$ref", "anyOf")}
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rpartition("/")[2]] | around
        else:
            (only,) = (part for part in schema["anyOf"] if part != {"type": "null"})
            schema = only | around
    return schema


def _ordered(schema: Json) -> Json:
    """Description and type first, then bounds, what is inside last."""
    middle = sorted(schema.keys() - {*_FIRST, *_LAST})
    return {name: schema[name] for name in (*_FIRST, *middle, *_LAST) if name in schema}
