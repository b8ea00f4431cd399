"""A resumed run continues bit for bit, because of every part of what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fixtures import tiny_training
from railwright import manifest

Losses = Mapping[str, list[float]]


@pytest.fixture(scope="module", params=["DDP", "FSDP"])
def losses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Losses:
    directory = tmp_path_factory.mktemp("run")
    found, _ = tiny_training.ranks_running(f"equality of {request.param}", directory, world_size=2)
    return {name: list(values) for name, values in found.items()}


def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(losses: Losses) -> None:
    assert losses["resumed"] == losses["uninterrupted"]
    assert len(set(losses["uninterrupted"])) == tiny_training.STEPS - tiny_training.SAVED_STEP


@pytest.mark.parametrize("part", ["optimizer", "random numbers", "data position"])
def test_every_part_of_what_is_saved_is_needed(losses: Losses, part: str) -> None:
    assert losses[f"without {part}"] != losses["uninterrupted"]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_checkpoint_loads_on_another_number_of_ranks(
    tmp_path: Path, before: int, after: int
) -> None:
    contents, _ = tiny_training.ranks_running("saved", tmp_path, world_size=before)
    found, errors = tiny_training.ranks_running("loaded", tmp_path, world_size=after)
    assert found["contents"] == contents
    assert f"{before} ranks had saved it, {after} go on" in errors
    first, again = found["chance"]
    assert len(set(first)) == after, "two ranks drew the same random number"
    assert again == first
    assert manifest.Volume(tmp_path / "local", "default").attempts() == [1], (
        "loading alone makes no attempt"
    )


def test_error_of_one_rank_is_raised_on_all(tmp_path: Path) -> None:
    """The others would wait for it in torch's collectives for half an hour."""
    seen, _ = tiny_training.ranks_running("failing", tmp_path, world_size=2)
    assert seen == [
        "RuntimeError: rank 1: ValueError: no place",
        "OSError: rank 1: no space",
        "RuntimeError: rank 1: SystemExit: 3",
        "ValueError: step: seen 1 on rank 0 and 2 on rank 1",
        "OSError: rank 0: /own-0/local/attempt-1/default/step-1 has no __1_0.distcp and 1 more "
        "that other ranks have written: is it on a volume that all ranks share?",
    ]


def test_older_fsdp_goes_on_alike(tmp_path: Path) -> None:
    equal, _ = tiny_training.ranks_running("flat parameters", tmp_path, world_size=2)
    assert equal == [True] * 4


def test_stages_of_a_pipeline_go_on_alike(tmp_path: Path) -> None:
    equal, _ = tiny_training.ranks_running("pipeline", tmp_path, world_size=2)
    assert equal == [True, True]


def test_stages_with_parameters_of_one_name_are_refused(tmp_path: Path) -> None:
    """torch saves those of any rank, and each stage would go on with them."""
    seen, _ = tiny_training.ranks_running("collisions", tmp_path, world_size=2)
    drifted, values, shapes, shards, average, named, *left = seen
    assert (drifted, named) == ("saved", "saved")
    for refused, name in ((values, "module.weight"), (shapes, "weight"), (shards, "weight")):
        assert refused == (
            f"RuntimeError: model.{name}: ranks 0 and 1 have other values of it, expected replicas "
            "of one: give each stage of a pipeline names of its own, as "
            'torch.nn.ModuleDict({f"stage{number}": stage}) does'
        )
    assert average.startswith("TypeError: state['others']['average']['weight']: seen a DTensor")
    assert left == ["drifted", "named"]


def test_buffers_are_those_of_rank_0(tmp_path: Path) -> None:
    """DistributedDataParallel goes on with these; torch saves those of any rank."""
    (saved, loaded), _ = tiny_training.ranks_running("buffers", tmp_path, world_size=2)
    assert loaded == saved != 0
