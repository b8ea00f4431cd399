"""Hash the part of a spec from which an attempt is made.

An attempt ends once its hash differs from that of the spec. So only what a user wrote takes part:
fields of this version without those at their defaults, and templates as they are. Fields of a later
version, and the defaults that its schema sets in them, change nothing, nor does the order of what
the API server takes in any order. But what a user wrote in a field of a later version takes part in
its hashes alone: those of two versions are compared only if both hash the same fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from railwright_api.training_job import TrainingJobSpec

Raw = Mapping[str, Any]

FIELDS = frozenset({"priority_class_name", "roles", "topology"})
OF_PRE_RUN = frozenset({"profiling", "workload"})

NUMBER = 4
"""Raise it with every change of how fields are hashed; which fields there are counts by itself."""

_UNSHAPED = frozenset({"template", "profile"})
"""Fields that are hashed as they are, or not at all."""

_SHAPING = frozenset(
    {"type", "enum", "const", "anyOf", "oneOf", "items", "prefixItems", "additionalProperties"}
)
"""What a schema says of the values of a field. Bounds and words change the hash of no job."""


def version(spec: type[BaseModel]) -> str:
    """What hashes of such specs begin with, by the names, types, values and defaults of the fields
    that are hashed. Hashes that begin otherwise are not compared, so that neither an upgrade nor a
    roll-back ends a running job."""
    schema = spec.model_json_schema()
    fields = {name: schema["properties"][name] for name in map(to_camel, FIELDS | OF_PRE_RUN)}
    shape = _shape({"properties": fields}, schema["$defs"])
    data = orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)
    return f"{NUMBER}.{hashlib.blake2b(data, digest_size=3).hexdigest()}"


def _shape(part: Any, models: Raw) -> Any:
    if isinstance(part, list):
        return [_shape(each, models) for each in part]
    if not isinstance(part, dict):
        return part
    whole = models.get(part.get("$ref", "").rpartition("/")[2], {}) | part
    shape = {key: _shape(whole[key], models) for key in _SHAPING & whole.keys()}
    fields = whole.get("properties", {})
    shaped = {name: _shape(fields[name], models) for name in fields.keys() - _UNSHAPED}
    return shape | {"fields": shaped, "default": whole.get("default", "none")}


VERSION = version(TrainingJobSpec)


def of(spec: TrainingJobSpec, templates: Sequence[Raw]) -> str:
    """The hash of a spec; ``templates`` are the whole ones of its roles."""
    return _digest(_written(spec, FIELDS), spec, templates)


def of_pre_run(spec: TrainingJobSpec, templates: Sequence[Raw]) -> str:
    """The same for a pre-run, which depends on the workload besides, but not on its profile."""
    fields = _written(spec, FIELDS | OF_PRE_RUN)
    (fields.get("workload") or {}).pop("profile", None)
    return _digest(fields, spec, templates)


def _written(spec: TrainingJobSpec, names: frozenset[str]) -> dict[str, Any]:
    fields = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=set(names))
    for part in (fields, *fields["roles"]):
        for limits in (part.get("topology") or {}).values():
            if isinstance(limits, list):
                limits.sort(key=lambda limit: str(limit["tier"]))
    return fields


def _digest(fields: dict[str, Any], spec: TrainingJobSpec, templates: Sequence[Raw]) -> str:
    whole = [role | {"template": its} for role, its in zip(fields["roles"], templates, strict=True)]
    made_from = fields | {"roles": whole, "training": spec.training_role.name}
    data = orjson.dumps(made_from, option=orjson.OPT_SORT_KEYS)
    return f"{VERSION}-{hashlib.blake2b(data, digest_size=8).hexdigest()}"
