"""What the API server refuses of a workload and of where a job has to stand: in the words that the
same mistake gets in a file."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from integration import manifests
from integration.manifests import accept, refusal
from railwright_api.training_job import TrainingJob
from railwright_api.workload import Workload
from railwright_testbed.api_client import ApiClient

Json = dict[str, Any]

SOUND: Json = {
    "transformer": {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "feedForward": 16384,
        "vocabulary": 51200,
    },
    "parallelism": {"tensor": 4, "pipeline": 2, "data": 2},
    "training": {"sequence": 2048, "globalBatch": 16},
}


THREE = manifests.roles(replicas=3, processesPerReplica=8)
SERVED = [*manifests.roles(processesPerReplica=8)["roles"], manifests.roles(name="ps")["roles"][0]]


def changed(path: str, value: object, also: Json | None = None) -> Json:
    workload = copy.deepcopy(SOUND)
    for place, new in {path: value, **(also or {})}.items():
        part, field = place.split(".")
        workload[part][field] = new
    return workload


def spec(workload: Json, **others: object) -> Json:
    return {**manifests.roles(processesPerReplica=8), "workload": workload, **others}


def test_valid_workload_is_accepted_with_defaults(admin: ApiClient) -> None:
    stored = accept(admin, manifests.job(spec=spec(SOUND)))["spec"]["workload"]
    assert stored["parallelism"] == {
        "tensor": 4,
        "context": 1,
        "pipeline": 2,
        "stagesPerRank": 1,
        "data": 2,
        "expert": 1,
        "replicas": 1,
        "rankOrder": "Megatron",
    }
    assert Workload.model_validate(stored) == Workload.model_validate(SOUND)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (
            changed("training.globalBatch", 15),
            "training.globalBatch is 15: expected a multiple of 2 (micro-batches of all replicas), "
            "such as 16",
        ),
        (changed("parallelism.context", 3), "training.sequence is 2048: expected a multiple of 3"),
        (changed("transformer.heads", 30), "transformer.heads is 30: expected a multiple of 4"),
        (
            changed("transformer.feedForward", 2),
            "transformer.feedForward is 2: expected a multiple of 4",
        ),
        (changed("parallelism.replicas", 4), "parallelism.data is 2: expected a multiple of 4"),
        (
            changed("transformer.hidden", 100),
            "transformer.hidden is 100: expected a multiple of 32 (heads",
        ),
        (
            changed("transformer.layers", 1),
            "transformer.layers is 1: expected 2, one a stage, or more",
        ),
        (
            changed("parallelism.context", 16, {"training.context": "Ulysses"}),
            "transformer.heads is 32: expected a multiple of 64",
        ),
        (
            changed("transformer.experts", 8, {"transformer.expertsPerToken": 9}),
            "transformer.expertsPerToken is 9 of 8 experts: expected 1 or more of them, or 0 of 0",
        ),
        (
            changed("transformer.expertsPerToken", 1),
            "transformer.expertsPerToken is 1 of 0 experts",
        ),
        (
            changed("transformer.experts", 8, {"transformer.expertsPerToken": 2}),
            "parallelism.tensor is 4 with experts: expected training.sequenceParallel: true, or 1",
        ),
        (
            changed(
                "parallelism.expert",
                3,
                {"transformer.experts": 9, "transformer.expertsPerToken": 1},
            ),
            "parallelism.tensor times parallelism.context times parallelism.data is 8: expected a "
            "multiple of 3",
        ),
        (
            changed(
                "parallelism.rankOrder",
                "DeepSpeed",
                {
                    "parallelism.expert": 4,
                    "transformer.experts": 8,
                    "transformer.expertsPerToken": 1,
                },
            ),
            "is 8: expected a multiple of 16 (expert-parallel ranks, replicas and, of DeepSpeed",
        ),
    ],
)
def test_uneven_workload_is_refused_with_even_values(
    admin: ApiClient, workload: Json, words: str
) -> None:
    refused(admin, spec(workload), words)


def test_ranks_are_as_many_as_the_job_has(admin: ApiClient) -> None:
    answer = refusal(admin, manifests.job(spec=spec(SOUND) | THREE))
    assert (
        "workload.parallelism has 16 ranks, but role worker has 3 replicas of 8 processes each, "
        "which are 24: these two must be equal"
    ) in answer


def test_parameter_servers_are_another_role(admin: ApiClient) -> None:
    served = spec(changed("parallelism.servers", "ps")) | {"roles": SERVED}
    stored = accept(admin, manifests.job(spec=served))["spec"]
    assert stored["workload"]["parallelism"]["servers"] == "ps"
    for name in ("worker", "psx"):
        words = (
            f'workload.parallelism.servers is "{name}": expected a role of this job beside worker, '
            "which trains"
        )
        refused(admin, served | {"workload": changed("parallelism.servers", name)}, words)


def refused(admin: ApiClient, asked: Json, words: str) -> None:
    """The API server and the model refuse the job, in the same words."""
    job = manifests.job(spec=asked)
    answer = refusal(admin, job)
    assert words in answer, answer
    with pytest.raises(ValidationError) as caught:
        TrainingJob.model_validate(job)
    assert words in str(caught.value)


def test_data_follows_from_the_ranks(admin: ApiClient) -> None:
    left_out = changed("parallelism.data", None)
    del left_out["parallelism"]["data"]
    stored = accept(admin, manifests.job(spec=spec(left_out)))
    assert "data" not in stored["spec"]["workload"]["parallelism"]
    refused(
        admin,
        spec(left_out) | THREE,
        "training.globalBatch is 16: expected a multiple of 3 (micro-batches of all replicas)",
    )
    left_out["parallelism"]["tensor"] = 16
    left_out["transformer"]["heads"] = 64
    refused(
        admin,
        spec(left_out) | THREE,
        "role worker has 24 ranks: expected a multiple of 32, which is tensor times context times "
        "pipeline of workload.parallelism, such as 32",
    )


OPAQUE: Json = {"opaque": {}, "parallelism": {"tensor": 4, "pipeline": 2}}


def test_model_is_described_or_opaque(admin: ApiClient) -> None:
    assert accept(admin, manifests.job(spec=spec(OPAQUE, profiling={"preRun": "Auto"})))
    one_of = "expected one of transformer, and opaque: {} for a model that is not described"
    refused(admin, spec(SOUND | OPAQUE), f"both are set: {one_of}")
    refused(admin, spec({"parallelism": {}}), f"none is set: {one_of}")
    method = "training must be set with transformer, and not with opaque"
    refused(admin, spec(OPAQUE | {"training": SOUND["training"]}), method)
    refused(admin, spec({name: SOUND[name] for name in ("transformer", "parallelism")}), method)
    served = spec(OPAQUE | {"parallelism": {"tensor": 8, "servers": "ps"}}) | {"roles": SERVED}
    refused(admin, served, "parallelism.servers is ps with an opaque model: leave it out")
    uneven = OPAQUE | {"parallelism": {"tensor": 4, "replicas": 3}}
    refused(admin, spec(uneven), "parallelism.data is 4: expected a multiple of 3 (replicas)")


@pytest.mark.parametrize(
    "asked",
    [
        manifests.roles(),
        spec(changed("parallelism.servers", "ps")) | {"roles": SERVED},
    ],
    ids=["no workload", "servers"],
)
def test_pre_run_needs_a_workload_without_servers(admin: ApiClient, asked: Json) -> None:
    job = manifests.job(spec=asked | {"profiling": {"preRun": "Auto"}})
    words = "profiling.preRun is Auto: expected a workload without parameter servers"
    assert words in refusal(admin, job)
    with pytest.raises(ValidationError, match=words):
        TrainingJob.model_validate(job)
    stored = accept(admin, manifests.job(spec=asked))["spec"]
    assert stored["profiling"]["preRun"] == "Never"
    auto = spec(SOUND, profiling={"preRun": "Auto"})
    assert accept(admin, manifests.job(spec=auto))["spec"]["profiling"]["preRun"] == "Auto"


def test_workload_names_a_role_of_the_job(admin: ApiClient) -> None:
    assert accept(admin, manifests.job(spec=spec(SOUND | {"role": "worker"})))
    answer = refusal(admin, manifests.job(spec=spec(SOUND | {"role": "other"})))
    assert 'workload.role is "other", which is no role of this job' in answer
    assert "such as worker" in answer


def test_topology_of_a_role_replaces_the_jobs(admin: ApiClient) -> None:
    topology = {"segments": [{"tier": "nearest", "nodes": 3}]}
    role = {"replicas": 4, "topology": {"required": "second"}}
    assert accept(admin, manifests.job(role=role, spec={"topology": topology}))
    answer = refusal(admin, manifests.job(role=role | {"topology": topology}))
    assert (
        "replicas is 4: expected a multiple of the largest of topology.segments, which is 3"
        in answer
    )


def test_segments_come_out_even(admin: ApiClient) -> None:
    topology = {"segments": [{"tier": "nearest", "nodes": 3}], "required": "second"}
    answer = refusal(admin, manifests.job(role={"replicas": 4}, spec={"topology": topology}))
    assert "the largest of topology.segments has 3 nodes: expected a divisor of" in answer
    assert accept(admin, manifests.job(role={"replicas": 6}, spec={"topology": topology}))


def test_topology_limits_several_tiers(admin: ApiClient) -> None:
    pairs = [{"tier": "scale-up-domain", "nodes": 2}, {"tier": "nearest", "nodes": 4}]
    spread = [{"tier": "nearest", "nodes": 4}, {"tier": "second", "nodes": 8}]
    asked = {"segments": pairs, "spread": spread, "required": "third"}
    eight = manifests.roles(replicas=8)
    assert accept(admin, manifests.job(spec=eight | {"topology": asked}))
    refused(
        admin,
        eight | {"topology": {"segments": pairs[::-1]}},
        "topology.segments has 2 nodes of scale-up-domain after 4 nodes of nearest: expected a "
        "multiple of 4, such as 4",
    )
    refused(
        admin,
        eight | {"topology": {"segments": pairs, "spread": [{"tier": "nearest", "nodes": 3}]}},
        "topology.spread has 3 nodes of nearest, which is less than a segment of 4",
    )
    narrow = {"required": "nearest", "spread": spread}
    words = "topology.required puts 8 replicas into one domain of nearest, and topology.spread"
    refused(admin, eight | {"topology": narrow}, f"{words} allows 4")
    refused(admin, manifests.roles(replicas=8, topology=narrow), f"{words} allows 4")


def test_aligned_rails_can_be_required(admin: ApiClient) -> None:
    assert accept(admin, manifests.job(spec={"topology": {"rails": "Aligned"}}))


@pytest.mark.parametrize(
    "topology",
    [
        {"required": ""},
        {"spread": [{"tier": "nearest"}]},
        {"spread": [{"tier": "nearest", "nodes": 0}]},
        {"segments": [{"nodes": 2}]},
        {"spread": [{"tier": "nearest", "nodes": 1}, {"tier": "nearest", "nodes": 2}]},
        {"rails": "aligned"},
    ],
)
def test_half_a_wish_is_refused(admin: ApiClient, topology: Json) -> None:
    assert "spec.topology" in refusal(admin, manifests.job(spec={"topology": topology}))
