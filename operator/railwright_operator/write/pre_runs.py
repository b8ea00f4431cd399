"""Job -> pre-run: a small job of the same template that records what the large one will send.

It has the job's tensor, context, pipeline and expert parallelism and as few replicas as can stand
for all of them, each with as much to do. Where nodes stand matters little to what is sent, so it
asks nothing of the network.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from railwright_api import names
from railwright_api.workload import RECORDED_RANKS_MAX
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.write import pods
from railwright_scheduler.communication import measured
from railwright_scheduler.model.workload import Workload

STEPS = 3
"""As many as are recorded if the job does not say."""

KEPT_S = 3600
"""How long one that is over is kept, for its logs."""

Manifest = dict[str, Any]
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PreRunPlan:
    """The pre-run of a job as it stands: ``of`` is the digest of its spec."""

    name: str
    of: str
    nodes: int
    ranks: int
    manifest: Manifest


def steps(cached: CachedJob, *, aside: bool = False) -> int:
    """How many steps ranks of the job's next attempt record: as many as it asks for, or some where
    it wants a pre-run and starts without what one would have recorded, or with what was recorded
    left ``aside``."""
    spec, profiling, workload = cached.job.spec, cached.job.spec.profiling, cached.workload
    if profiling.steps or profiling.pre_run == "Never":
        return profiling.steps
    is_too_large = spec.num_nodes * spec.num_proc_per_node > RECORDED_RANKS_MAX
    if is_too_large or workload is None or spec.workload is None or spec.workload.profile:
        return 0
    return STEPS if workload.profile is None or aside else 0


def plan(cached: CachedJob) -> PreRunPlan | None:
    """What would have to run ahead of this job; None if it is no larger itself."""
    assert cached.workload is not None, cached.uid
    data, whole = _data(cached, cached.workload), cached.workload.split.data
    if data == whole:
        return None
    spec = cached.job.spec
    nodes = spec.num_nodes * data // whole
    name = names.pre_run_name(cached.raw["metadata"]["name"])
    asked = _spec(cached.object.whole["spec"], data=data, nodes=nodes)
    digest = hashlib.blake2b(
        orjson.dumps(asked, option=orjson.OPT_SORT_KEYS), digest_size=8
    ).hexdigest()
    return PreRunPlan(
        name=name,
        of=digest,
        nodes=nodes,
        ranks=nodes * spec.num_proc_per_node,
        manifest={
            "apiVersion": names.API_VERSION,
            "kind": "TrainingJob",
            "metadata": _metadata(cached.raw["metadata"], name, digest),
            "spec": asked,
        },
    )


def _data(cached: CachedJob, workload: Workload) -> int:
    """Data-parallel ranks of the smallest gang, of whole nodes, that can stand for the job."""
    return measured.smallest(workload, multiple=cached.job.spec.num_proc_per_node).data


def _spec(spec: Raw, *, data: int, nodes: int) -> Manifest:
    asked = copy.deepcopy(dict(spec))
    workload = asked["workload"]
    workload.pop("profile", None)
    parallelism, training = workload["parallelism"], workload["training"]
    training["globalBatch"] = training["globalBatch"] // parallelism.get("data", 1) * data
    parallelism["data"] = data
    asked.pop("topology", None)
    asked.update(
        numNodes=nodes,
        profiling={"steps": spec.get("profiling", {}).get("steps") or STEPS, "preRun": "Never"},
        suspend=False,
        backoffLimit=0,
        ttlSecondsAfterFinished=KEPT_S,
    )
    return asked


def _metadata(job: Raw, name: str, digest: str) -> Manifest:
    return {
        "name": name,
        "namespace": job["namespace"],
        "labels": {names.LABEL_PRE_RUN_OF: job["name"]},
        "annotations": {names.ANNOTATION_PRE_RUN: digest},
        "ownerReferences": [pods.owner_reference(job["name"], uid=job["uid"])],
    }
