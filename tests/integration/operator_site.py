"""A running operator over simulated nodes, and a floor of nodes for each test.

All tests share one control plane, one kwok and one operator. What keeps them apart is the floor:
its nodes carry a label that its jobs select, so no job ever has a claim on another test's nodes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fixtures import proxy
from fixtures.proxy import FaultProxy
from fixtures.training import LiveJob, Training
from history import recorded
from railwright_api import names
from railwright_conversion import interconnects
from railwright_kube.paths import NODES
from railwright_scheduler.model.evidence import UNREADY_S
from railwright_testbed import (
    ControlPlane,
    ControlPlaneOptions,
    NodeSpec,
    operator_process,
    service_process,
    waiting,
)
from railwright_testbed.api_client import ApiClient, ApiError
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.kwok import Kwok
from railwright_testbed.operator_process import OperatorProcess

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
FLOOR_LABEL = "example.com/floor"
LAUNCHER_IMAGE = "example.com/launcher"
HALL_NODES, COMMAND = 64, ("python3", "train.py")
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{service_process.NAMESPACE}/leases"
LEASE = f"{LEASES}/{operator_process.SERVICE_ACCOUNT}"
FABRIC = f"/apis/{names.API_VERSION}/{names.FABRICS}/{names.SINGLETON}"
LEDGER = f"/apis/{names.API_VERSION}/{names.LEDGERS}/{names.SINGLETON}"
DEADLINE_S = 60.0
"""The garbage collector learns of new kinds every 30 s; until then it deletes nothing of theirs."""
NODE_LOST_S = UNREADY_S + 80.0
"""Until a node is lost, and its job bound anew, whose launcher sent no message."""

NODE_GRACE_S = 180
"""After an outage of the API server, kwok renews at intervals that grow to a minute."""

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

_numbers = itertools.count(1)


class Job(LiveJob):
    """An applied job, looked at over a kept connection instead of by a kubectl each time."""

    def __init__(self, plane: ControlPlane, admin: ApiClient, namespace: str, name: str) -> None:
        super().__init__(plane, namespace, name)
        self._admin = admin
        self._path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.TRAINING_JOBS}"

    def object(self) -> Json:
        """The whole TrainingJob; empty when there is none."""
        try:
            return self._admin.get(f"{self._path}/{self.name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return {}

    def status(self) -> Json:
        """Its status; empty while it has none, or is gone."""
        status: Json = self.object().get("status", {})
        return status

    def pods(self) -> list[Json]:
        """Its pods, of all attempts."""
        chosen = f"labelSelector={names.LABEL_JOB_NAME}%3D{self.name}"
        found = self._admin.get(f"/api/v1/namespaces/{self.namespace}/pods?{chosen}")
        return list(found["items"])

    def bound(self, attempt: int = 1) -> dict[int, str]:
        """The node of each node rank whose pod of this attempt is bound and not over."""
        return {
            int(pod["metadata"]["labels"][names.LABEL_NODE_RANK]): pod["spec"]["nodeName"]
            for pod in self.pods()
            if pod["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt)
            and "nodeName" in pod["spec"]
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        }

    def until_older(self) -> None:
        """Wait until a job made now is younger: the API dates them in whole seconds."""
        made = datetime.fromisoformat(self.object()["metadata"]["creationTimestamp"])
        waiting.until(
            lambda: datetime.now(UTC) - made > timedelta(seconds=1.1), "a second", deadline_s=5
        )

    def until_bound(self, attempt: int = 1, *, deadline_s: float = DEADLINE_S) -> Json:
        """Its status once every pod of this attempt is bound, and its commit is over.

        Until then a deleted pod is created again.
        """
        return self.until(
            lambda status: status.get("attempt") == attempt and self._is_bound(status),
            f"attempt {attempt} bound",
            deadline_s=deadline_s,
        )

    def until_bound_at_last(self) -> Json:
        """The same of whichever attempt gets that far, where its plan may fail before."""
        return self.until(self._is_bound, "an attempt bound", deadline_s=DEADLINE_S)

    def until_nodes(self, attempt: int | None = 1) -> list[str]:
        """Its nodes once every pod of this attempt, or of any, is bound."""
        _ = self.until_bound_at_last() if attempt is None else self.until_bound(attempt)
        return self.nodes()

    def _is_bound(self, status: Json) -> bool:
        bound = self.bound(status["attempt"]) if status.get("nodes") else {}
        return bool(bound) and not self._in_flight() and bound == dict(enumerate(self.nodes()))

    def _in_flight(self) -> bool:
        entries = self._admin.get(LEDGER)["spec"].get("entries", [])
        its = {(entry["namespace"], entry["jobName"]) for entry in entries}
        return (self.namespace, self.name) in its

    def until_reason(self, reason: str, *, deadline_s: float = 20.0) -> Json:
        """Its status once it gives this reason."""
        return self.until(
            lambda status: status.get("reason") == reason, reason, deadline_s=deadline_s
        )

    def until_said(self, words: str, *, deadline_s: float = 20.0) -> Json:
        """Its status once its message holds these words."""
        return self.until(
            lambda status: words in status.get("message", ""), words, deadline_s=deadline_s
        )

    def until_events(self, *reasons: str) -> None:
        """Wait until its events are these, the oldest first: they are posted after the status."""
        waiting.until(
            lambda: self.events() == list(reasons),
            f"events {reasons}",
            deadline_s=20,
            evidence=lambda: str(self.events()),
        )


@dataclass(frozen=True, slots=True)
class Site:
    """The shared state of all tests. The proxy is between the operator and the API server."""

    plane: ControlPlane
    kwok: Kwok
    operator: OperatorProcess
    controllers: ControllersProcess
    admin: ApiClient
    proxy: FaultProxy

    def ledger(self) -> Json:
        """The ledger's object."""
        return self.admin.get(LEDGER)

    def forge(self, write: Callable[[], object], policy: str = "records") -> None:
        """Write without the policy that reserves these fields for the operator.

        A policy comes into force, and out of it, with a delay.
        """
        name = f"{policy}.{names.GROUP}"
        held = self.admin.get(f"{POLICIES}/{name}")
        self.admin.delete(f"{POLICIES}/{name}")
        try:
            waiting.until(lambda: _is_let_through(write), "no policy in force", deadline_s=20)
        finally:
            self.admin.post(POLICIES, {"metadata": {"name": name}, "spec": held["spec"]})

    def until_nodes_heard(self) -> None:
        """Wait until the operator and the Fabric have all changes of nodes: a watch delivers in
        order, so after the creation and deletion of a last node it has delivered all before.

        A job arrives by another watch, and could be placed on the old nodes otherwise.
        """
        name = f"heard-{next(_numbers)}"
        self.admin.post(NODES, {"metadata": {"name": name}})
        self.until_all_nodes_held()
        self.admin.delete(f"{NODES}/{name}")
        self.until_all_nodes_held()

    def until_all_nodes_held(self) -> None:
        """Wait until the operator and the Fabric have all nodes, and no other."""

        def held() -> bool:
            if not self.controllers.alive:  # They end when they lose their Lease.
                self.controllers.start()
            nodes = {each["metadata"]["name"] for each in self.admin.get(NODES)["items"]}
            (count,) = self.metrics('railwright_watch_records{kind="Node"').values()
            topology = self.admin.get(FABRIC).get("status", {}).get("topology", {})
            return count == len(nodes) and nodes == interconnects.parse(topology).places.keys()

        waiting.until(held, "all nodes, and no other", deadline_s=30)

    def metrics(self, name: str) -> dict[str, float]:
        """The operator's series of this name, by their labels as they are printed."""
        return self.operator.series(name)


@dataclass(frozen=True, slots=True)
class Floor:
    """Nodes and a namespace of one test's own. ``name`` is that of both."""

    site: Site
    name: str
    nodes: list[str] = field(default_factory=list)

    def add(self, rack: str, count: int, *, gpus: int = 8, pages: str = "0") -> list[str]:
        """Add nodes to a rack and wait for them; their names sort in the order of creation."""
        first = len(self.nodes)
        specs = [
            NodeSpec(
                f"{self.name}-{number:02d}",
                {FLOOR_LABEL: self.name, names.LABEL_RACK: rack},
                {"nvidia.com/gpu": str(gpus), "hugepages-2Mi": pages},
            )
            for number in range(first, first + count)
        ]
        self.site.kwok.add_nodes(specs)
        self.site.until_all_nodes_held()
        self.nodes.extend(made := [spec.name for spec in specs])
        return made

    def apply(
        self,
        name: str,
        *,
        resources: Json | None = None,
        template: Json | None = None,
        beside: Sequence[Json] = (),
        annotations: Mapping[str, str] | None = None,
        **parts: Any,
    ) -> Job:
        """Apply a job for this floor. ``parts`` are of Training, or of the spec."""
        shape = parts.keys() & {"nodes", "gpus", "processes", "volumes"}
        given = {"gpus": 8} | {part: parts.pop(part) for part in shape}
        manifest = Training(name, COMMAND, spec=parts, **given).manifest(self.name)
        (role,) = manifest["spec"]["roles"]
        limits = {"nvidia.com/gpu": given["gpus"], **(resources or {})}
        pod = (template or role["template"])["spec"] | {"nodeSelector": {FLOOR_LABEL: self.name}}
        main, *others = pod["containers"]
        pod["containers"] = [main | {"resources": {"limits": limits}}, *others, *beside]
        role["template"] = {"metadata": {"annotations": dict(annotations or {})}, "spec": pod}
        self.site.admin.post(self.path(names.TRAINING_JOBS), manifest)
        return Job(self.site.plane, self.site.admin, self.name, name)

    def path(self, plural: str) -> str:
        """Where our objects of a kind are, of this floor's namespace."""
        return f"/apis/{names.API_VERSION}/namespaces/{self.name}/{plural}"

    def create(self, manifest: Json) -> None:
        """Create any object, in this floor's namespace if it is of a namespaced kind."""
        self.site.plane.kubectl("-n", self.name, "create", "-f", "-", stdin=json.dumps(manifest))

    def in_flight(self) -> list[str]:
        """The attempts in the ledger, by their pods' common name."""
        entries = self.site.ledger()["spec"].get("entries", [])
        mine = [entry for entry in entries if entry["namespace"] == self.name]
        return [f"{entry['jobName']}-{entry['attempt']}" for entry in mine]

    def left(self) -> list[str]:
        """What there is of jobs in the namespace, and in the ledger."""
        kinds = (names.TRAINING_JOBS, names.PLACEMENTS, names.PROFILES)
        paths = [*map(self.path, kinds), f"/api/v1/namespaces/{self.name}/pods"]
        found = [
            f"{path.rpartition('/')[2]}/{item['metadata']['name']}"
            for path in paths
            for item in self.site.admin.get(path)["items"]
        ]
        return found + [f"ledger/{name}" for name in self.in_flight()]

    def clear(self) -> None:
        """Every job goes, its pods without grace, and whatever they leave."""
        self._delete_jobs()
        self.until_nothing_is_left()

    def remove(self) -> None:
        """Its jobs and its nodes go: kubelets of nodes that stay would renew their Leases."""
        self._delete_jobs()
        self.site.admin.delete(f"{NODES}?labelSelector={FLOOR_LABEL}%3D{self.name}")

    def _delete_jobs(self) -> None:
        self.site.admin.delete(self.path(names.TRAINING_JOBS))
        self.site.admin.delete(f"/api/v1/namespaces/{self.name}/pods?gracePeriodSeconds=0")

    def until_nothing_is_left(self, *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until every trace of every job is gone."""
        waiting.until(
            lambda: not self.left(),
            "nothing left",
            deadline_s=deadline_s,
            evidence=lambda: str(self.left()),
        )


@contextmanager
def opened() -> Iterator[Site]:
    """A site of its own, with the operator ready and leading; at the end its history is checked."""
    options = ControlPlaneOptions(node_grace_s=NODE_GRACE_S)
    with ControlPlane.start("operator", options=options) as plane, closing(plane.client()) as admin:
        service_process.install(plane, ROOT)
        admin.delete(LEASES)  # As if somebody had done it: the processes create them.
        with (
            plane.kwok() as kwok,
            proxy.beside(plane) as between,
            ControllersProcess(plane) as controllers,
            replica(plane, "operator", through=between) as operator,
        ):
            site = Site(plane, kwok, operator, controllers, admin, between)
            waiting.until(lambda: _has_ledger(site), "a leader", deadline_s=30)
            yield site
            recorded.demand_sound_history(plane)


def start_again(site: Site) -> None:
    """Start the shared operator anew after its end, without the 15 s in which a successor waits for
    the Lease of a dead holder: other tests cover these."""
    site.operator.stop()
    site.admin.delete(LEASE)
    site.operator.start()


def replica(
    plane: ControlPlane, name: str, *, through: FaultProxy, module: str = "railwright_operator"
) -> OperatorProcess:
    """One more operator process, not started yet."""
    return OperatorProcess(
        plane,
        name=name,
        host="127.0.0.1",
        launcher_image=LAUNCHER_IMAGE,
        through=through.entrance,
        module=module,
    )


@contextmanager
def floor_on(site: Site, racks: Sequence[int] = (2, 2), *, gpus: int = 8) -> Iterator[Floor]:
    """A new floor with so many nodes in each rack, and a namespace where pods can be made."""
    floor = Floor(site, f"floor-{next(_numbers)}")
    site.plane.kubectl("create", "namespace", floor.name)
    for number, count in enumerate(racks):
        floor.add(f"{floor.name}-rack-{number}", count, gpus=gpus)
    _create_account(site.admin, floor.name)
    yield floor
    floor.remove()


def _create_account(admin: ApiClient, namespace: str) -> None:
    """The service account of every pod; its controller can be late after an outage."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    try:
        admin.post(path, {"metadata": {"name": "default"}})
    except ApiError as error:
        if error.status != 409:
            raise


def _is_let_through(write: Callable[[], object]) -> bool:
    try:
        write()
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def _has_ledger(site: Site) -> bool:
    try:
        return bool(site.ledger()["spec"]["epoch"] > 0)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
