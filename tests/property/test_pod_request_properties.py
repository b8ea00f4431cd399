"""What a pod requests, against its life in phases: what runs at the same time, added up.

Each plain init container runs alone beside the sidecars started before it; then all containers run
beside all sidecars. kube-scheduler reserves the most that any phase has in use (``PodRequests`` of
its component helpers). Requests of the pod as a whole replace that, its limits do not, and the
overhead comes on top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fixtures import protobufs
from railwright_conversion import amounts
from railwright_kube import protobuf
from railwright_kube.projections import Undeclared
from railwright_kube.protobuf import PodList
from railwright_operator.watch import records

Json = dict[str, Any]
Need = dict[str, tuple[int, str]]
"""Numbers and units by resource."""

UNITS = {
    "cpu": {"m": 1, "": 1000, "k": 1_000_000},
    "memory": {"": 1, "k": 1000, "Mi": 2**20, "Ei": 2**60},
    "ephemeral-storage": {"": 1, "Gi": 2**30, "P": 10**15},
    "hugepages-2Mi": {"": 1, "Mi": 2**20, "Gi": 2**30},
    "nvidia.com/gpu": {"": 1},
    "example.com/nic": {"": 1, "k": 1000},
}
OF_WHOLE_PODS = ("cpu", "memory", "hugepages-2Mi")
"""The resources that a pod as a whole can request."""


@dataclass(frozen=True)
class Container:
    """What a container requests, or limits alone; a sidecar is an init container that goes on."""

    requests: Need
    limits: Need
    sidecar: bool

    def uses(self, resource: str) -> int:
        """The API server makes a limit without a request a request."""
        return _value(resource, self.requests if resource in self.requests else self.limits)

    def manifest(self) -> Json:
        """The container in a pod."""
        resources = {"requests": _texts(self.requests), "limits": _texts(self.limits)}
        return {"resources": resources} | ({"restartPolicy": "Always"} if self.sidecar else {})


def _value(resource: str, need: Need) -> int:
    number, unit = need.get(resource, (0, ""))
    return number * UNITS[resource][unit]


def _texts(need: Need) -> dict[str, str]:
    return {resource: f"{number}{unit}" for resource, (number, unit) in need.items()}


def _amount(resource: str) -> st.SearchStrategy[tuple[int, str]]:
    units = st.sampled_from(sorted(UNITS[resource]))
    few = st.tuples(st.integers(0, 7), units)
    largest = max(UNITS[resource], key=UNITS[resource].__getitem__)
    return few | st.tuples(st.integers(0, (2**63 - 1) // UNITS[resource][largest]), units)


def _needs(*resources: str) -> st.SearchStrategy[Need]:
    return st.fixed_dictionaries({}, optional={name: _amount(name) for name in resources})


def _lists(min_size: int, *, sidecars: bool) -> st.SearchStrategy[list[Container]]:
    is_sidecar = st.booleans() if sidecars else st.just(False)
    containers = st.builds(Container, _needs(*UNITS), _needs(*UNITS), is_sidecar)
    return st.lists(containers, min_size=min_size, max_size=6)


def _phases(init: list[Container], main: list[Container]) -> Iterator[list[Container]]:
    sidecars: list[Container] = []
    for container in init:
        yield [*sidecars, container]
        if container.sidecar:
            sidecars.append(container)
    yield [*sidecars, *main]


def _read(spec: Json) -> list[dict[str, int]]:
    """The requests as a user wrote them, and of a stored pod, in each form that it comes in."""
    metadata = {"uid": "u", "namespace": "team", "name": "pod", "resourceVersion": "1"}
    raw = {"metadata": metadata, "spec": spec, "status": {}}
    (item,) = protobuf.POD.page(protobufs.page(PodList, [raw])).items
    found = [protobuf.POD.listed(item), protobuf.POD.streamed(orjson.dumps(raw))]
    stored = [records.pod(pod) for pod in found if not isinstance(pod, Undeclared)]
    assert len(stored) == len(found)
    written = amounts.requested(amounts.asked(spec))
    return [dict(written), *(dict(pod.requests) for pod in stored if pod)]


@given(
    _lists(0, sidecars=True),
    _lists(1, sidecars=False),
    _needs(*UNITS),
    _needs(*OF_WHOLE_PODS),
    _needs(*OF_WHOLE_PODS),
)
def test_requests_are_the_most_in_use_at_any_time(
    init: list[Container], main: list[Container], overhead: Need, requests: Need, limits: Need
) -> None:
    spec = {
        "initContainers": [container.manifest() for container in init],
        "containers": [container.manifest() for container in main],
        "overhead": _texts(overhead),
        "resources": {"requests": _texts(requests), "limits": _texts(limits)},
    }
    expected = {"pods": 1}
    for name in UNITS:
        phases = _phases(init, main)
        most = max(sum(container.uses(name) for container in phase) for phase in phases)
        of_pod = _value(name, requests) if name in requests else most
        expected[name] = of_pod + _value(name, overhead)
    expected = {name: amount for name, amount in expected.items() if amount}
    for read in _read(spec):
        assert read == expected
