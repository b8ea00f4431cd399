"""Histories made up line by line, as etcd would hold them; one line is one revision.

node n0 8                    n0 has 8 GPUs; `node n0 gone` removes it
job a Running 1/0            job a is Running, attempt 1 is its newest, none ended; `job a gone`
ledger 3 me a-1=n0,n1        epoch 3, held by me; attempt 1 of job a commits on n0 and n1
ledger 3 me a-1!n0,n1        ... and is aborted, as a rank failed
make a-1-0                   the pod of rank 0 of attempt 1 of job a; it asks for 8 GPUs
bind a-1-0 n0                its binding lands
end a-1-0                    it succeeds
take a-1-0                   the operator's delete of it lands; `lose a-1-0` is a stranger's
gone a-1-0                   its kubelet lets go of it
guest g n0 8                 a pod of others with 8 GPUs; `guest g gone`
place a-1                    the Placement of attempt 1 of job a
wait 61                      so many seconds pass
note {"note": "rest"}        what a test noted
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from railwright_api import names
from railwright_testbed.history import MARKS, REGISTRY, Change, Revision

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
PODS = f"{REGISTRY}pods/team/"
FIRST_S = 1_800_000_000


class Planted:
    """The revisions of a text, and which of them the operator's deletes made."""

    def __init__(self, text: str) -> None:
        self._now_s = FIRST_S
        self._objects: dict[str, Json] = {}
        self.revisions: list[Revision] = []
        self.deletes: set[tuple[str, int]] = set()
        for line in filter(None, map(str.strip, text.splitlines())):
            verb, _, rest = line.partition(" ")
            change = self._note(rest) if verb == "note" else self._verbs()[verb](*rest.split())
            if change.value is None:
                self._objects.pop(change.key, None)
            else:
                self._objects[change.key] = change.value
            self.revisions.append(Revision(len(self.revisions) + 1, (copy.deepcopy(change),)))

    def _verbs(self) -> dict[str, Callable[..., Change]]:
        return {
            "node": self._node,
            "job": self._job,
            "ledger": self._ledger,
            "make": self._make,
            "bind": self._bind,
            "end": self._end,
            "take": self._take,
            "lose": self._lose,
            "gone": lambda name: Change(PODS + name, None),
            "guest": self._guest,
            "place": self._place,
            "wait": self._wait,
        }

    def _node(self, name: str, gpus: str) -> Change:
        status = {"allocatable": {GPU: gpus, "pods": "110"}}
        value = {"metadata": self._metadata(name), "status": status}
        return Change(f"{REGISTRY}minions/{name}", None if gpus == "gone" else value)

    def _job(self, name: str, phase: str, attempts: str = "0/0", *counts: str) -> Change:
        key = f"{REGISTRY}railwright.dev/trainingjobs/team/{name}"
        newest, ended = map(int, attempts.split("/"))
        told = {word.partition("=")[0]: int(word.partition("=")[2]) for word in counts}
        status = {"phase": phase, "attempt": newest, "endedAttempt": ended, "observedGeneration": 1}
        nodes = ["n0", "n1"] if newest > ended else []
        conditions = [{"type": "Running", "lastTransitionTime": self._time()}]
        value = {
            "metadata": {**self._metadata(name), "generation": 1},
            "spec": {"backoffLimit": 1},
            "status": {**status, **told, "nodes": nodes, "conditions": conditions},
        }
        return Change(key, None if phase == "gone" else value)

    def _ledger(self, epoch: str, holder: str = "", *entries: str) -> Change:
        key = f"{REGISTRY}railwright.dev/ledgers/default"
        spec = {
            "epoch": 0 if epoch == "gone" else int(epoch),
            "incarnation": "x",
            "holder": holder,
            "entries": [_entry(word) for word in entries],
        }
        value = {"metadata": self._metadata("default"), "spec": spec}
        return Change(key, None if epoch == "gone" else value)

    def _make(self, name: str) -> Change:
        job, attempt, rank = name.split("-")
        metadata = self._metadata(name)
        metadata["uid"] = f"{name}-{len(self.revisions)}"
        metadata["ownerReferences"] = [{"uid": job}]
        metadata["labels"] = {
            names.LABEL_JOB_UID: job,
            names.LABEL_ATTEMPT: attempt,
            names.LABEL_NODE_RANK: rank,
        }
        spec = {"schedulerName": names.SCHEDULER, "containers": [_container("8")]}
        return Change(
            PODS + name, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        )

    def _bind(self, name: str, node: str) -> Change:
        value = self._pod(name)
        value["spec"]["nodeName"] = node
        value["status"] = {"phase": "Running", "conditions": [self._bound()]}
        return Change(PODS + name, value)

    def _end(self, name: str) -> Change:
        value = self._pod(name)
        value["status"]["phase"] = "Succeeded"
        return Change(PODS + name, value)

    def _take(self, name: str) -> Change:
        self.deletes.add((PODS + name, len(self.revisions) + 1))
        return self._lose(name)

    def _lose(self, name: str) -> Change:
        value = self._pod(name)
        value["metadata"]["deletionTimestamp"] = self._time()
        return Change(PODS + name, value if value["spec"].get("nodeName") else None)

    def _guest(self, name: str, node: str, gpus: str = "0") -> Change:
        spec = {"nodeName": node, "containers": [_container(gpus)]}
        value = {"metadata": self._metadata(name), "spec": spec, "status": {"phase": "Running"}}
        value["metadata"]["managedFields"] = []
        return Change(PODS + name, None if node == "gone" else value)

    def _place(self, name: str) -> Change:
        owner = [{"uid": name.partition("-")[0]}]
        value = {"metadata": {**self._metadata(name), "ownerReferences": owner}}
        return Change(f"{REGISTRY}railwright.dev/placements/team/{name}", value)

    def _wait(self, seconds: str) -> Change:
        self._now_s += int(seconds)
        lease = {"metadata": self._metadata("n0"), "spec": {"renewTime": self._time()}}
        return Change(f"{REGISTRY}leases/kube-node-lease/n0", lease)

    def _note(self, text: str) -> Change:
        return Change(MARKS, json.loads(text))

    def _pod(self, name: str) -> Json:
        return copy.deepcopy(self._objects[PODS + name])

    def _bound(self) -> Json:
        return {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._time()}

    def _metadata(self, name: str) -> Json:
        written = {"manager": "railwright", "operation": "Update", "time": self._time()}
        return {"name": name, "namespace": "team", "uid": name, "managedFields": [written]}

    def _time(self) -> str:
        return datetime.fromtimestamp(self._now_s, UTC).isoformat()


def _entry(word: str) -> Json:
    aborting = "!" in word
    name, nodes = word.split("!" if aborting else "=")
    job, attempt = name.split("-")
    cause = {"cause": {"code": "RankFailed", "message": "rank 1 exited with 1"}}
    return {
        "jobUID": job,
        "namespace": "team",
        "jobName": job,
        "attempt": int(attempt),
        "state": "Aborting" if aborting else "Committing",
        "nodes": nodes.split(","),
        "perNode": {GPU: 8, "pods": 1},
        **(cause if aborting else {}),
    }


def _container(gpus: str) -> Json:
    return {"name": "main", "resources": {"requests": {GPU: gpus}}}
