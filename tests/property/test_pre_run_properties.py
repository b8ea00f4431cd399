"""The smallest gang that can stand for a job: what it records is taken, and no smaller one's is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from fixtures import attempts, profiled_jobs, reporting, seen
from fixtures.jobs import job
from railwright_api.workload import Workload as Said
from railwright_operator.write import rendering
from railwright_scheduler import pre_run
from railwright_scheduler.communication import measured
from railwright_scheduler.communication.measured import UnfitError
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile
from railwright_scheduler.model.workload import Framework, Workload
from railwright_scheduler.pre_run import RANKS_MAX

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
        | {
            "replicas": replicas,
            "expert": draw(FEW) if experts else 1,
            "rankOrder": draw(st.sampled_from(FRAMEWORKS)),
        }
        | draw(st.sampled_from([{}, {"data": data}])),
        "training": {
            "sequence": 64,
            "globalBatch": data * draw(st.integers(1, 3)),
            "sequenceParallel": True,
            "sharding": draw(st.sampled_from(["None", "Optimizer", "Parameters"])),
        },
    }
    try:
        Said.model_validate(workload).on(ranks)
    except ValueError:
        assume(False)
    return reporting.raw_job(
        "large",
        replicas=ranks // processes,
        processes=processes,
        spec={"workload": workload, "profiling": {"preRun": "Auto"}},
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
def test_profile_of_the_smallest_pre_run_is_the_jobs(raw: dict[str, Any]) -> None:
    cached = profiled_jobs.cached(raw)
    large, (asked,) = cached.workload, cached.roles
    assert large is not None
    processes = asked.ranks_per_pod
    plain = job(replicas=asked.replicas, ranks_per_pod=processes, workload=large)
    observed = attempts.seen(job=plain, pre_run=cached.requested_pre_run)
    found = pre_run.resolve(observed, ())
    itself, small = asked.replicas * processes, found.job
    ranks = small.num_pods * processes
    if found.record.pre_run is not None and found.record.pre_run.given_up:
        return
    assert ranks <= max(itself, RANKS_MAX)
    if large.recipe.framework is not Framework.DEEPSPEED:
        fewer = range(processes, ranks, processes)
        assert not [few for few in fewer if recorded(large, of_all(few))]
    steps = rendering.profile_steps(cached, attempts.entry())
    assert steps == (rendering.PROFILE_STEPS if itself <= RANKS_MAX else 0)
    if small is plain:
        return
    assert small.num_pods < asked.replicas
    workload = small.roles[0].workload
    assert workload is not None
    assert workload.split.ranks == ranks
    assert recorded(large, seen.profile(workload))
    # Each replica has as much to do.
    assert workload.recipe.micro_batches(workload.split) == large.recipe.micro_batches(large.split)
