"""The smallest gang that can stand for a job: what it records is taken, and no smaller one's is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from fixtures import reporting, seen
from railwright_api.training_job import TrainingJob
from railwright_api.workload import RECORDED_RANKS_MAX
from railwright_api.workload import Workload as Said
from railwright_conversion import workloads
from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import pods, pre_runs
from railwright_scheduler.communication import measured
from railwright_scheduler.communication.measured import UnfitError
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile
from railwright_scheduler.model.workload import Framework, Workload

FEW = st.sampled_from([1, 2, 4])
FRAMEWORKS = ["Megatron", "MegatronPipelineFirst", "DeepSpeed", "Torch"]


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A large job of any split, on nodes of any number of processes, that wants a pre-run."""
    experts = draw(st.sampled_from([0, 8]))
    replicas = draw(st.sampled_from([1, 2, 3]))
    data = replicas * draw(st.sampled_from([1, 2, 4, 6, 12]))
    split = {"tensor": draw(FEW), "context": draw(FEW), "pipeline": draw(FEW)}
    ranks = split["tensor"] * split["context"] * split["pipeline"] * data
    processes = draw(st.sampled_from([count for count in (1, 2, 3, 8) if ranks % count == 0]))
    workload = {
        "transformer": {
            "layers": 16,
            "hidden": 256,
            "heads": 16,
            "feedForward": 1024,
            "vocabulary": 1000,
            "experts": experts,
            "expertsPerToken": min(2, experts),
        },
        "parallelism": split
        | {"data": data, "replicas": replicas, "expert": draw(FEW) if experts else 1},
        "training": {
            "sequence": 64,
            "globalBatch": data * draw(st.integers(1, 3)),
            "sequenceParallel": True,
            "sharding": draw(st.sampled_from(["None", "Optimizer", "Parameters"])),
            "rankOrder": draw(st.sampled_from(FRAMEWORKS)),
        },
    }
    try:
        Said.model_validate(workload)
    except ValueError:
        assume(False)
    spec = {"numNodes": ranks // processes, "numProcPerNode": processes}
    return reporting.raw_job(
        "large", spec=spec | {"workload": workload, "profiling": {"preRun": "Auto"}}
    )


def recorded(workload: Workload, profile: Profile) -> bool:
    """Whether this can be what the job was seen to send."""
    try:
        measured.communicators(replace(workload, profile=profile))
    except UnfitError:
        return False
    return True


def of_all(ranks: int) -> Profile:
    """All of them summed up something."""
    calls = (CallRecord(Operation.ALL_REDUCE, "float32", calls=1, size=4),)
    return Profile(ranks, 1, (GroupProfile((tuple(range(ranks)),), calls),))


@given(jobs())
def test_pre_run_is_a_valid_job_and_its_profile_is_the_jobs(raw: dict[str, Any]) -> None:
    store = Jobs(lambda raw: pods.sample(raw, reporting.LAUNCHER))
    store.absorb(raw)
    cached = store.get("large-uid")
    assert cached is not None, store.why_unreadable("large-uid")
    assert cached.workload is not None
    plan, asked = pre_runs.plan(cached), cached.job.spec
    ranks = asked.num_nodes * asked.num_proc_per_node if plan is None else plan.ranks
    if cached.workload.recipe.framework is not Framework.DEEPSPEED:
        fewer = range(asked.num_proc_per_node, ranks, asked.num_proc_per_node)
        assert not [few for few in fewer if recorded(cached.workload, of_all(few))]
    itself = asked.num_nodes * asked.num_proc_per_node
    assert pre_runs.steps(cached) == (pre_runs.STEPS if itself <= RECORDED_RANKS_MAX else 0)
    if plan is None:
        return
    ahead = TrainingJob.model_validate(plan.manifest).spec
    assert ahead.num_nodes == plan.nodes < asked.num_nodes
    assert ahead.num_nodes * ahead.num_proc_per_node == plan.ranks
    assert ahead.workload is not None
    small, large = workloads.workload(ahead.workload), cached.workload
    assert recorded(large, seen.profile(small))
    # Each replica has as much to do.
    assert small.recipe.micro_batches(small.split) == large.recipe.micro_batches(large.split)
