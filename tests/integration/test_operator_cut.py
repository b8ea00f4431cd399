"""The control plane is cut off from all of its nodes: nothing that lives is ended for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest

from fixtures import proxy
from fixtures.training import Training
from integration import operator_site
from integration.operator_site import Json, Site
from railwright_api import names
from railwright_scheduler.attempt.breaker import SETTLE_S
from railwright_testbed import ControlPlane, NodeSpec, service_process, waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.kwok import Kwok
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

GPUS = 8
NODES = 100
MORTAL = 5
CUT_S = 60.0
FOUND_S = 60.0
"""After a cut, nodes that died in it are found within this time."""

JOBS = f"/apis/{names.API_VERSION}/namespaces/default/{names.TRAINING_JOBS}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One job on each of the nodes. The ``mortal`` ones are simulated by a kwok of their own."""

    site: Site
    mortal: Kwok
    launchers: SimulatedLaunchers

    @property
    def mortal_nodes(self) -> set[str]:
        return {f"mortal-{number}" for number in range(MORTAL)}

    def jobs(self) -> list[Json]:
        found: list[Json] = self.site.admin.get(JOBS)["items"]
        return found

    def phases(self) -> dict[str, tuple[str, int]]:
        """Each job's phase and attempt."""
        return {
            job["metadata"]["name"]: (
                job.get("status", {}).get("phase", ""),
                job.get("status", {}).get("attempt", 0),
            )
            for job in self.jobs()
        }

    def breaker(self) -> float:
        (value,) = self.site.metrics("railwright_breaker_open").values()
        return value

    def ended(self) -> dict[str, str]:
        """The node of each job whose attempt was ended, by why."""
        ends = (job.get("status", {}).get("lastTermination") for job in self.jobs())
        return {end["node"]: end["cause"] for end in ends if end is not None}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Nodes become not Ready in the middle of the cut: the grace period is that of Kubernetes."""
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane.start("cut"))
        admin = stack.enter_context(closing(plane.client()))
        service_process.install(plane, operator_site.ROOT)
        kwok = stack.enter_context(plane.kwok(_nodes("node", NODES - MORTAL)))
        mortal = stack.enter_context(plane.kwok(_nodes("mortal", MORTAL)))
        between = stack.enter_context(proxy.beside(plane))
        controllers = stack.enter_context(ControllersProcess(plane))
        operator = operator_site.replica(plane, "operator", through=between)
        stack.enter_context(operator)
        played = Played(steps=1_000_000, checkpoint_interval_steps=1_000_000)
        launchers = stack.enter_context(SimulatedLaunchers(plane, played))
        for number in range(NODES):
            job = Training(f"job-{number:03}", operator_site.COMMAND, nodes=1, gpus=GPUS)
            admin.post(JOBS, job.manifest("default"))
        cluster = Cluster(
            Site(plane, kwok, operator, controllers, admin, between), mortal, launchers
        )
        _until_all_run(cluster)
        yield cluster


def test_cut_of_a_minute_ends_no_attempt_and_the_dead_are_found(cluster: Cluster) -> None:
    before = cluster.phases()
    _cut(cluster)
    end_s = time.monotonic() + CUT_S
    waiting.until(lambda: cluster.breaker() == 1.0, "an open breaker", deadline_s=25)
    waiting.until(
        lambda: any(_reason(job) == "NodesUnreachable" for job in cluster.jobs()),
        "a job that says so",
        deadline_s=25,
    )
    while time.monotonic() < end_s:
        assert cluster.phases() == before
        time.sleep(2.0)
    cluster.site.kwok.thaw()
    for number in range(NODES - MORTAL):
        cluster.launchers.resume(f"node-{number:03}")
    healed_s = time.monotonic()
    waiting.until(
        lambda: cluster.ended().keys() == cluster.mortal_nodes,
        "the dead nodes found",
        deadline_s=FOUND_S,
        evidence=lambda: str(cluster.ended()),
    )
    assert set(cluster.ended().values()) == {"NodeLost"}
    assert time.monotonic() - healed_s >= SETTLE_S / 2
    waiting.until(lambda: cluster.breaker() == 0.0, "a closed breaker", deadline_s=10)
    kept = {name: seen for name, seen in cluster.phases().items() if seen == ("Running", 1)}
    assert len(kept) == NODES - MORTAL


def _cut(cluster: Cluster) -> None:
    """No launcher sends heartbeats, and no kubelet renews."""
    for node in (*(f"node-{number:03}" for number in range(NODES - MORTAL)), *cluster.mortal_nodes):
        cluster.launchers.silence(node)
    cluster.site.kwok.freeze()
    cluster.mortal.freeze()


def _nodes(prefix: str, count: int) -> list[NodeSpec]:
    width = 3 if prefix == "node" else 1
    return [
        NodeSpec(f"{prefix}-{number:0{width}}", {}, {"nvidia.com/gpu": str(GPUS)})
        for number in range(count)
    ]


def _reason(job: Json) -> str:
    return str(job.get("status", {}).get("reason", ""))


def _until_all_run(cluster: Cluster) -> None:
    waiting.until(
        lambda: set(cluster.phases().values()) == {("Running", 1)},
        f"{NODES} running jobs",
        deadline_s=120,
        evidence=lambda: str(cluster.phases()),
    )
