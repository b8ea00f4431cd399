"""Pods that somebody else makes and binds: of other systems, and of jobs that are not there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from railwright_api import names
from railwright_kube import paths
from railwright_scheduler.attempt.ledger import AttemptKey
from simulator.machines import GPU
from simulator.simulated_cluster import SimulatedCluster
from simulator.statuses import StatusError
from simulator.users import NAMESPACE

DEVICES, FOREIGN_DEVICES = 8, 4
ORPHAN = "orphan"


class ForeignPods:
    """The pods of others."""

    def __init__(self, cluster: SimulatedCluster, rng: Random) -> None:
        self._cluster = cluster
        self._server = cluster.server
        self._rng = rng
        self._bound: list[str] = []

    def create(self) -> str:
        """A pod of something else, on any node."""
        found = self._cluster.machines.names
        if not found:
            return ""
        metadata = {"name": f"foreign-{len(self._bound)}", "namespace": "others"}
        node, gpus = self._rng.choice(found), self._rng.randint(1, FOREIGN_DEVICES)
        return self._bind(metadata, node, gpus=gpus)

    def create_orphan(self) -> str:
        """Somebody binds a pod of a job that is not there beside pods of another one, as from a
        backup. In half of the cases the job was there once."""
        pods, machines = self._server.objects(paths.PODS), self._cluster.machines.names
        labelled = [pod for pod in pods if names.LABEL_JOB_UID in pod["metadata"].get("labels", {})]
        found = [node for pod in labelled if (node := pod["spec"].get("nodeName")) in machines]
        if not found:
            return ""
        there = [job["metadata"]["uid"] for job in self._cluster.users.jobs]
        gone = [key for key in self._cluster.launchers.trainings if key[0] not in there]
        is_gone = bool(gone) and self._rng.random() < 0.5
        job_uid, attempt = self._rng.choice(gone) if is_gone else ("unknown", len(self._bound))
        job = f"{ORPHAN}{len(self._bound)}"
        owner = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "controller": True}
        metadata = {
            "name": names.pod_name(job, "worker", 0, attempt),
            "namespace": NAMESPACE,
            "ownerReferences": [{**owner, "name": job, "uid": job_uid}],
            "labels": {
                names.LABEL_JOB_UID: job_uid,
                names.LABEL_JOB_NAME: job,
                names.LABEL_ATTEMPT: str(attempt),
                names.LABEL_NODE_RANK: "0",
                names.LABEL_ROLE: "worker",
                names.LABEL_COMPLETION_INDEX: "0",
            },
        }
        return self._bind(metadata, self._rng.choice(found), gpus=DEVICES)

    def attempts_on(self, nodes: Collection[str]) -> set[AttemptKey]:
        """The attempts that orphans on these nodes name."""
        orphans = [
            pod["metadata"]["labels"]
            for pod in self._server.objects(paths.PODS)
            if pod["metadata"]["name"].startswith(ORPHAN) and pod["spec"]["nodeName"] in nodes
        ]
        return {(each[names.LABEL_JOB_UID], int(each[names.LABEL_ATTEMPT])) for each in orphans}

    def _bind(self, metadata: Mapping[str, Any], node: str, *, gpus: int) -> str:
        """Somebody makes a pod that is bound; its name."""
        limits = {GPU: str(gpus)}
        resources = {"limits": limits, "requests": limits}
        container = {"name": "main", "image": "none", "resources": resources}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": node, "containers": [container]},
        }
        with contextlib.suppress(StatusError):
            self._server.request("POST", paths.pods(metadata["namespace"]), body)
        self._bound.append(metadata["name"])
        return self._bound[-1]

    def end(self) -> None:
        """All of them have ended."""
        for pod in self._server.objects(paths.PODS):
            if pod["metadata"]["name"] in self._bound:
                self._cluster.machines.end(pod, exit_code=0)
