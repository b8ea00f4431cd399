"""What a pod takes and what a node has, in exact integers.

A pod's requests are counted as Kubernetes counts them: its containers and sidecars run together;
each plain init container runs alone beside the sidecars started before it; the larger of the two
counts, plus the overhead of its runtime class. Pod-level requests replace that larger one for the
resources they name; the API server makes pod-level limits requests where these are missing. Resizes
in place are not followed: devices cannot be resized.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from railwright_api import quantities
from railwright_scheduler.model.snapshot import Amounts

SHAPES_MAX = 4096
SHARED_AMOUNTS_MAX = 64
"""Longer ones are not cached: a tenant may create pods with thousands of containers."""


Quantities = Mapping[str, Any]
"""Amounts as an API object has them, by resource: texts, or what protobuf has for one."""

Amount = Callable[[str, str], int]
"""Reads the amount of a resource."""


class RequestedResources(Protocol):
    """The resources of a container, or of a pod as a whole."""

    @property
    def limits(self) -> Quantities: ...

    @property
    def requests(self) -> Quantities: ...


class RequestingContainer(Protocol):
    """A container of a pod."""

    @property
    def resources(self) -> RequestedResources: ...

    @property
    def restart_policy(self) -> str: ...


class RequestingPod(Protocol):
    """The spec of a pod, whoever decoded it."""

    @property
    def containers(self) -> Sequence[RequestingContainer]: ...

    @property
    def init_containers(self) -> Sequence[RequestingContainer]: ...

    @property
    def overhead(self) -> Quantities: ...

    @property
    def resources(self) -> RequestedResources: ...


@dataclass(frozen=True, slots=True)
class _Resources:
    limits: Quantities
    requests: Quantities


@dataclass(frozen=True, slots=True)
class _Container:
    resources: _Resources
    restart_policy: str


@dataclass(frozen=True, slots=True)
class _PodSpec:
    containers: tuple[_Container, ...]
    init_containers: tuple[_Container, ...]
    overhead: Quantities
    resources: _Resources


def asked(spec: Mapping[str, Any]) -> RequestingPod:
    """The requests of a pod spec that a user wrote. The API server reports other errors in it."""
    return _PodSpec(
        containers=tuple(map(_container, spec["containers"])),
        init_containers=tuple(map(_container, spec.get("initContainers") or ())),
        overhead=_texts(spec.get("overhead")),
        resources=_resources(spec),
    )


def requested(spec: RequestingPod) -> Amounts:
    """The effective requests of a pod that a user wants, the pod itself included, zeros left out.
    Pods with equal requests share one mapping.

    Raises QuantityError for an amount that cannot be used.
    """
    return _effective(spec, quantities.amount)


def counted(spec: RequestingPod) -> Amounts:
    """The same of a pod that is there. No amount hides the others: Kubernetes runs such a pod."""
    return _effective(spec, quantities.counted)


def _effective(spec: RequestingPod, amount: Amount) -> Amounts:
    total = _sum(_requests(container, amount) for container in spec.containers)
    if spec.init_containers:
        total = _beside(spec.init_containers, total, amount)
    total |= _parsed(spec.resources.requests, amount)
    total = _sum([total, _parsed(spec.overhead, amount), {"pods": 1}])
    return _nonzero(total)


def with_overhead(per_pod: Amounts, overhead: Mapping[str, Any]) -> Amounts:
    """The requests of a pod to which a RuntimeClass adds this overhead. Raises QuantityError."""
    return _nonzero(_sum([per_pod, _parsed(_texts(overhead), quantities.amount)]))


def allocatable(raw: Quantities) -> tuple[Amounts, Mapping[str, str]]:
    """The amounts of a node, and the errors of those that could not be read, which count as 0."""
    parsed: dict[str, int] = {}
    unread: dict[str, str] = {}
    for resource, amount in raw.items():
        try:
            parsed[resource] = quantities.amount(resource, _written(amount))
        except quantities.QuantityError as error:
            parsed[resource] = 0
            unread[resource] = str(error)
    return _shared(tuple(sorted(parsed.items()))), unread


def _beside(
    init: Iterable[RequestingContainer], together: Mapping[str, int], amount: Amount
) -> dict[str, int]:
    """The maximum of the running containers and of these, which run before them. Each container
    is visited with its own resources only: a pod may have thousands of both."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init:
        is_sidecar = container.restart_policy == "Always"
        for name, its in _requests(container, amount).items():
            before = sidecars.get(name, 0)
            if is_sidecar:
                sidecars[name] = before + its
            else:
                peak[name] = max(peak.get(name, 0), before + its)
    return _larger(_sum([together, sidecars]), peak)


def _requests(container: RequestingContainer, amount: Amount) -> dict[str, int]:
    """The requests of a container. A limit without a request is one, as in the API server."""
    resources = container.resources
    return _parsed({**resources.limits, **resources.requests}, amount)


def _parsed(raw: Quantities, amount: Amount) -> dict[str, int]:
    return {name: amount(name, _written(its)) for name, its in raw.items()}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in [*one, *other]}


def _nonzero(total: Mapping[str, int]) -> Amounts:
    return _shared(tuple(sorted((name, amount) for name, amount in total.items() if amount)))


def _shared(items: tuple[tuple[str, int], ...]) -> Amounts:
    return _same(items) if len(items) <= SHARED_AMOUNTS_MAX else MappingProxyType(dict(items))


@functools.lru_cache(maxsize=SHAPES_MAX)
def _same(items: tuple[tuple[str, int], ...]) -> Amounts:
    return MappingProxyType(dict(items))


def _written(quantity: Any) -> str:
    """An amount, as a text or as protobuf has it."""
    return quantity if isinstance(quantity, str) else str(quantity.string)


def _container(raw: Mapping[str, Any]) -> _Container:
    return _Container(_resources(raw), str(raw.get("restartPolicy") or ""))


def _resources(raw: Mapping[str, Any]) -> _Resources:
    resources = raw.get("resources") or {}
    return _Resources(_texts(resources.get("limits")), _texts(resources.get("requests")))


def _texts(raw: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in (raw or {}).items()}
