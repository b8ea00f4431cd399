"""The cached object of a TrainingJob: metadata and status decoded, the spec as bytes.

A pod template can be large, and a thousand of them as Python objects are larger by far. So a spec
stays JSON until a pod is made from it, and of one above ``SPEC_BYTES_MAX`` the templates are
reduced to what accounts for what the job holds already: such a job starts no attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from railwright_kube import body_limits, projections
from railwright_kube.projections import Identity
from railwright_scheduler.model.reasons import TooLarge

Raw = Mapping[str, Any]

SPEC_BYTES_MAX = 256 * 1024
"""Of JSON. etcd accepts objects of 1.5 MiB; a status with 16,384 lost nodes must fit beside it."""

_CONTAINER_KEPT = ("name", "image", "resources", "restartPolicy")
_POD_KEPT = ("nodeSelector", "tolerations", "overhead", "resources", "runtimeClassName")
_PATH_LENGTH_MAX = 200
_PATH_PARTS_MAX = 8


class JobMetadata(Identity, rename="camel", frozen=True, omit_defaults=True):
    """The decoded fields of a job's metadata."""

    namespace: str
    generation: int
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    finalizers: tuple[str, ...] = ()


class TrainingJob(Struct, frozen=True):
    """The decoded fields of a TrainingJob."""

    metadata: JobMetadata
    spec: msgspec.Raw
    status: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class JobObject:
    """A TrainingJob. ``raw`` has the metadata and the status. ``spec`` is JSON: the whole spec, or,
    if it is ``too_large``, without a profile, and of templates only what accounts for the usage."""

    raw: Raw
    spec: bytes
    too_large: TooLarge | None = None

    @property
    def uid(self) -> str:
        """The job's UID."""
        return str(self.raw["metadata"]["uid"])

    @property
    def rv(self) -> int:
        """The version of the object."""
        return int(self.raw["metadata"]["resourceVersion"])

    @property
    def generation(self) -> int:
        """The version of its spec."""
        return int(self.raw["metadata"]["generation"])

    @property
    def too_deep(self) -> bool:
        """Whether the spec was cut because it is nested too deeply."""
        return body_limits.TOO_DEEP in self.spec

    @property
    def whole(self) -> Raw:
        """The object with its spec, decoded anew each time."""
        return {**self.raw, "spec": orjson.loads(self.spec)}


def parse(found: TrainingJob) -> JobObject:
    """The job from a list or a watch."""
    return _job(found.metadata, found.status, bytes(found.spec))


def answered(raw: Raw) -> JobObject:
    """The job from the response to a request. Raises KeyError or ValueError if it is invalid."""
    metadata = msgspec.convert(raw["metadata"], JobMetadata)
    try:
        spec = orjson.dumps(raw["spec"])
    except orjson.JSONEncodeError:
        spec = orjson.dumps(body_limits.TOO_DEEP.decode())
    return _job(metadata, raw.get("status"), spec)


def with_held_spec(held: JobObject, news: JobObject) -> JobObject:
    """The new object, sharing the bytes of an unchanged spec."""
    return replace(news, spec=held.spec) if held.generation == news.generation else news


def reduced(roles: Sequence[Raw]) -> list[Raw]:
    """Reduce the pod template of each role to what accounts for the usage of its pods."""
    return [{**role, "template": _reduced_template(role["template"])} for role in roles]


def _reduced_template(template: Raw) -> Raw:
    spec = template["spec"]
    kept: dict[str, Any] = {name: spec[name] for name in _POD_KEPT if name in spec}
    for name in ("containers", "initContainers"):
        if spec.get(name) is not None:
            kept[name] = [_reduced_container(container) for container in spec[name]]
    return {"spec": kept}


def _reduced_container(container: Raw) -> Raw:
    kept = {name: container[name] for name in _CONTAINER_KEPT if name in container}
    return {**kept, "command": []}


def _job(metadata: JobMetadata, status: Raw | None, spec: bytes) -> JobObject:
    raw = {"metadata": msgspec.to_builtins(metadata)} | ({"status": status} if status else {})
    if len(spec) <= SPEC_BYTES_MAX:
        return JobObject(raw, spec)
    whole, plain = _plain(spec)
    if len(plain) <= SPEC_BYTES_MAX:
        return JobObject(raw, plain)
    kept = {**whole, "roles": reduced(whole["roles"])}
    if "workload" in whole:
        kept["workload"] = {**whole["workload"], "profile": None}
    part, part_size = _largest("spec", whole)
    return JobObject(raw, orjson.dumps(kept), TooLarge(len(plain), SPEC_BYTES_MAX, part, part_size))


def _plain(spec: bytes) -> tuple[Any, bytes]:
    """The spec decoded, and as plain JSON, to which the bound applies: the API server escapes more
    characters than needed."""
    try:
        whole = orjson.loads(spec)
        return whole, orjson.dumps(whole)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        whole = orjson.loads(body_limits.shallow(spec))
        return whole, orjson.dumps(whole)


def _largest(path: str, value: Any) -> tuple[str, int]:
    """The smallest part with more than half of all bytes, and its size."""
    size = whole = len(orjson.dumps(value))
    for _ in range(_PATH_PARTS_MAX):
        if not isinstance(value, dict | list) or not value:
            break
        if isinstance(value, dict):
            parts = [(f"{path}.{name}", part) for name, part in value.items()]
        else:
            parts = [(f"{path}[{at}]", part) for at, part in enumerate(value)]
        sizes = [len(orjson.dumps(part)) for _, part in parts]
        at = max(range(len(parts)), key=sizes.__getitem__)
        if 2 * sizes[at] <= whole:
            break
        (path, value), size = parts[at], sizes[at]
    return path[:_PATH_LENGTH_MAX], size


JOBS = projections.of(TrainingJob)
