"""Hash the part of a spec from which an attempt is made.

An attempt ends once its hash differs from that of the spec. So only what a user wrote takes part:
fields of this version without those at their defaults, and templates as they are. Fields of a later
version, and the defaults that its schema sets in them, change nothing, nor does the order of what
the API server takes in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from railwright_api.training_job import TrainingJobSpec

Raw = Mapping[str, Any]

FIELDS = frozenset({"priority_class_name", "roles", "topology"})
OF_PRE_RUN = frozenset({"profiling", "workload"})

VERSION = 4
"""Raise it with every change of what is hashed, and of a default in it. Hashes of two versions are
not compared, so that an upgrade ends no running job."""


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
