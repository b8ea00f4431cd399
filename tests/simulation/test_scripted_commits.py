"""Commits of one gang with requests that arrive late, at moments that random seeds seldom reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from history.invariants import ViolationError
from railwright_api import names, routes
from railwright_api.training_job import TrainingJobSpec
from railwright_kube import paths
from railwright_operator.write import ledger
from simulator import virtual_loop
from simulator.api_server import ApiRequest
from simulator.machines import GPU
from simulator.replicas import Replica
from simulator.simulated_cluster import SimulatedCluster
from simulator.users import NAMESPACE
from simulator.virtual_loop import VirtualLoop

POLL_S = 0.05
DEADLINE_S = 120.0

CONTAINER = {
    "name": "train",
    "image": "none",
    "command": ["train"],
    "resources": {"limits": {GPU: "4"}},
}
ROLE = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}
SPEC = TrainingJobSpec.model_validate({"roles": [ROLE]}).model_dump(
    by_alias=True, exclude_none=True, mode="json"
)
JOB = routes.one(names.TRAINING_JOBS, "a", namespace=NAMESPACE)
BINDING = paths.binding(NAMESPACE, "a-worker-0-1")


class Stage:
    """A cluster of one node, one job and as many leaders as the script says; all links are well."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.cluster = SimulatedCluster(loop, seed=0)
        self.server = self.cluster.server
        self.cluster.machines.add("n0", gpus=8)

    def lead(self) -> Replica:
        """Another replica gets the Lease; one that led does not find that out."""
        replica = self.cluster.start_replica()
        replica.lead()
        self.cluster.holder = replica
        return replica

    def create_job(self, *finalizers: str) -> None:
        """Create the job."""
        kind = {"apiVersion": names.API_VERSION, "kind": "TrainingJob"}
        metadata = {"name": "a", "namespace": NAMESPACE, "finalizers": [*finalizers]}
        body = {**kind, "metadata": metadata, "spec": SPEC}
        self.server.request("POST", routes.kind(names.TRAINING_JOBS, NAMESPACE), body)

    def suspend_job(self) -> None:
        """Suspend it."""
        self.server.request("PATCH", JOB, {"spec": {"suspend": True}})

    @property
    def status(self) -> Mapping[str, Any]:
        """The job's status."""
        found: Mapping[str, Any] = self.server.request("GET", JOB).get("status", {})
        return found

    @property
    def pods(self) -> list[dict[str, Any]]:
        """All pods."""
        return self.server.objects(paths.PODS)

    @property
    def in_flight(self) -> bool:
        """Whether the ledger has entries."""
        return bool(self.server.request("GET", ledger.PATH)["spec"].get("entries"))

    def landed(self, method: str, path: str) -> list[int]:
        """How the API server answered these requests of the operator so far."""
        lines = [line.split() for line in self.cluster.trace]
        return [int(line[-1]) for line in lines if line[2:-1] == [method, path]]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for this."""
        deadline_s = self.cluster.loop.time() + DEADLINE_S
        while self.cluster.loop.time() < deadline_s:
            if condition():
                return
            await asyncio.sleep(POLL_S)
        raise AssertionError("\n".join(self.cluster.trace))


def scripted(scene: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
    """A test that plays this scene in virtual time, in which no invariant is broken."""

    async def play(loop: VirtualLoop) -> None:
        broken: list[object] = []
        loop.set_exception_handler(lambda _, context: broken.append(context))
        await scene(Stage(loop))
        assert not broken

    def test() -> None:
        virtual_loop.run(play, Random(0))

    return test


def binds(request: ApiRequest) -> bool:
    return request.path.endswith("/binding")


def creates_pod(request: ApiRequest) -> bool:
    return request.method == "POST" and request.path.endswith("/pods")


def writes_ledger(request: ApiRequest) -> bool:
    return request.method == "PUT" and request.path == ledger.PATH


@scripted
async def test_late_binding_spares_pod_of_same_named_job(stage: Stage) -> None:
    """The binding has the UID of the old pod as precondition; without it, it would land."""
    old = stage.lead()
    held = old.delay_requests(binds)
    stage.create_job()
    await stage.until(lambda: held.requests)
    await stage.cluster.end_replica(old)
    stage.server.request("DELETE", JOB)
    stage.cluster.machines.remove("n0")
    stage.cluster.machines.add("n1", gpus=8)
    new = stage.lead()
    await stage.until(lambda: not stage.pods and not stage.in_flight)
    waiting = new.delay_requests(binds)
    stage.create_job()
    await stage.until(lambda: waiting.requests)
    held.release()
    assert stage.landed("POST", BINDING) == [409]
    assert ["nodeName" in pod["spec"] for pod in stage.pods] == [False]
    (late,) = held.requests
    forged = replace(late, body=late.body | {"metadata": {"name": "a-worker-0-1"}})
    with pytest.raises(
        ViolationError, match="I14: a-worker-0-1 is bound to n0, the ledger says n1"
    ):
        stage.server.answer(forged)


@scripted
async def test_pod_made_after_its_attempt_is_never_bound(stage: Stage) -> None:
    """A delayed create lands after the end of its attempt; the pod is deleted."""
    old = stage.lead()
    held = old.delay_requests(creates_pod)
    stage.create_job()
    await stage.until(lambda: held.requests)
    await stage.cluster.end_replica(old)
    stage.suspend_job()
    stage.lead()
    await stage.until(lambda: stage.status["phase"] == "Suspended" and not stage.in_flight)
    held.release()
    assert [pod["metadata"]["name"] for pod in stage.pods] == ["a-worker-0-1"]
    await stage.until(lambda: not stage.pods)
    assert stage.landed("POST", BINDING) == []


@scripted
async def test_deposed_leader_binds_no_pod_made_since(stage: Stage) -> None:
    """A leader that missed its end may create a pod, but sends no binding."""
    old = stage.lead()
    held = old.delay_requests(creates_pod)
    stage.create_job()
    await stage.until(lambda: held.requests)
    old.stall_watches(DEADLINE_S, expires=False)
    stage.suspend_job()
    stage.lead()
    await stage.until(lambda: stage.status["phase"] == "Suspended" and not stage.in_flight)
    assert old.is_leader
    sent = old.delay_requests(binds)
    held.release()
    await stage.until(lambda: old.has_ended and not stage.pods)
    assert stage.landed("POST", paths.pods(NAMESPACE)) == [201]
    assert sent.requests == []


@scripted
async def test_enlarged_pod_is_not_bound_by_next_leader(stage: Stage) -> None:
    """A webhook raised the requests of a pod before the change of leaders."""

    def enlarge(verb: str, path: str, found: dict[str, Any]) -> dict[str, Any]:
        if verb != "create" or not path.endswith("/pods"):
            return found
        container = CONTAINER | {"resources": {"limits": {GPU: "8"}, "requests": {GPU: "8"}}}
        return {**found, "spec": {**found["spec"], "containers": [container]}}

    stage.server.admission.append(enlarge)
    old = stage.lead()
    held = old.delay_requests(creates_pod)
    stage.create_job()
    await stage.until(lambda: held.requests)
    held.release()
    await stage.cluster.end_replica(old)
    stage.server.admission.remove(enlarge)
    stage.lead()
    await stage.until(lambda: stage.status.get("lastTermination"))
    assert stage.status["lastTermination"]["cause"] == "CommitRefused"
    await stage.until(lambda: stage.status["phase"] == "Succeeded")
    assert stage.landed("POST", BINDING) == []


@scripted
async def test_an_epoch_is_won_by_one_of_two(stage: Stage) -> None:
    """Both read the ledger before either writes it."""
    first, second = stage.lead(), stage.lead()
    held = [each.delay_requests(writes_ledger) for each in (first, second)]
    await stage.until(lambda: all(each.requests for each in held))
    for each in held:
        each.release()
    assert stage.landed("PUT", ledger.PATH) == [200, 409]
    stage.create_job()
    await stage.until(lambda: stage.status.get("phase") == "Succeeded" and not stage.in_flight)
    assert [first.has_ended, second.has_ended].count(True) == 1


@scripted
async def test_job_that_a_finalizer_keeps_holds_no_node(stage: Stage) -> None:
    """It was deleted while it ran; the garbage collector waits for its end."""
    stage.lead()
    stage.create_job("example.com/backup")
    await stage.until(lambda: stage.status.get("phase") == "Running")
    stage.server.request("DELETE", JOB)
    await stage.until(lambda: not stage.pods and not stage.in_flight)
    assert "deletionTimestamp" in stage.server.request("GET", JOB)["metadata"]
