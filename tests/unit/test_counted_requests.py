"""What a pod that is there requests: Kubernetes runs it, so none of its amounts hides another."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from railwright_api import quantities
from railwright_conversion import amounts
from railwright_kube import protobuf
from railwright_kube.projections import Undeclared
from railwright_operator.watch import records

GPUS = {"nvidia.com/gpu": "8"}


def counted(spec: dict[str, Any]) -> dict[str, int]:
    """The requests of a pod with this spec, as the operator keeps them."""
    metadata = {"uid": "u", "namespace": "team", "name": "pod", "resourceVersion": "1"}
    found = protobuf.POD.streamed(orjson.dumps({"metadata": metadata, "spec": spec, "status": {}}))
    assert not isinstance(found, Undeclared)
    return dict(records.pod(found).requests)


def requesting(number: int, name: str, **more: Any) -> dict[str, Any]:
    return {"name": f"c{number}", "resources": {"requests": {name: "1"}}, **more}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"memory": "10E"}, {}),
        ({"cpu": "10P"}, {}),
        ({"kubernetes.io/batch-cpu": "500m"}, {"kubernetes.io/batch-cpu": 1}),
        ({"kubernetes.io/batch-cpu": "2500m"}, {"kubernetes.io/batch-cpu": 3}),
        ({"cpu": "9P"}, {"cpu": 9 * 10**18}),
    ],
)
def test_no_amount_hides_the_devices_of_a_pod(
    requests: dict[str, str], expected: dict[str, int]
) -> None:
    """Kubernetes counts in 64 bits, and whole pieces of what it does not know."""
    spec = {"containers": [{"name": "m", "resources": {"requests": GPUS | requests}}]}
    assert counted(spec) == {"nvidia.com/gpu": 8, "pods": 1} | expected
    with pytest.raises(quantities.QuantityError):
        amounts.requested(amounts.asked(spec | {"overhead": {"memory": "10E"}}))


def test_each_container_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of 1 MB can have thousands of sidecars' resources beside thousands of containers."""

    class Amount(int):
        additions = 0

        def __radd__(self, other: int) -> Amount:
            Amount.additions += 1
            return Amount(int(other) + int(self))

        __add__ = __radd__

    monkeypatch.setattr(quantities, "counted", lambda resource, text: Amount(text))
    sidecars = [requesting(n, f"a/{n}", restartPolicy="Always") for n in range(200)]
    init = [requesting(n, "cpu") for n in range(200)]
    found = counted({"containers": [requesting(0, "cpu")], "initContainers": [*sidecars, *init]})
    assert (len(found), found["cpu"]) == (202, 1)
    assert Amount.additions < 2_000
