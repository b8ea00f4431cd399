"""Render the pre-run of a job: a small job of the same template that records its traffic.

It has the job's tensor, context, pipeline and expert parallelism, the fewest data-parallel replicas
that represent all of them, and the same work for each. The location of nodes hardly changes the
traffic, so it has no topology constraints.
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
"""The recorded steps of a job that does not set their number."""

KEPT_S = 3600
"""How long a finished pre-run is kept, for its logs."""

Manifest = dict[str, Any]
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PreRunPlan:
    """The pre-run of a job; ``of`` is the digest of its spec."""

    name: str
    of: str
    nodes: int
    ranks: int
    manifest: Manifest


def steps(cached: CachedJob, *, aside: bool = False) -> int:
    """The steps that ranks of the job's next attempt record: those of its spec; or a few if it has
    pre-runs enabled and starts without a profile, or with one that is left ``aside``."""
    spec, profiling, workload = cached.job.spec, cached.job.spec.profiling, cached.workload
    if profiling.steps or profiling.pre_run == "Never":
        return profiling.steps
    is_too_large = spec.num_nodes * spec.num_proc_per_node > RECORDED_RANKS_MAX
    if is_too_large or workload is None or spec.workload is None or spec.workload.profile:
        return 0
    return STEPS if workload.profile is None or aside else 0


def plan(cached: CachedJob) -> PreRunPlan | None:
    """The pre-run for this job; None if the job itself is as small."""
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
    """Data-parallel ranks of the smallest gang, of whole nodes, that represents the job."""
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
