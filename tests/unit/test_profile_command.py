"""``railwright profile`` and ``explain --profile``: ranks' files in, what they send out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.command import run
from railwright import profile, strides
from railwright.profile import Calls, Operation, Recorded

WORKLOAD = """\
transformer: {layers: 8, hidden: 1024, heads: 16, feedForward: 4096, vocabulary: 32000}
parallelism: {tensor: 8, data: 4}
training: {sequence: 2048, globalBatch: 32, gradientBytes: 4}
"""
RANKS = 16
EXPLAIN = ("explain", "--machine", "DGX H100")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What 16 ranks have left: tensor-parallel ones sent 1 MB a step each, replicas 8 kB."""
    for rank in range(RANKS):
        within = strides.folded(range(rank - rank % 8, rank - rank % 8 + 8))
        across = strides.folded(range(rank % 8, RANKS, 8))
        part = Recorded(
            rank,
            RANKS,
            steps=2,
            step_s=1.0,
            compute_s=None,
            calls=(
                Calls(within, Operation.ALL_GATHER, "bfloat16", 10, 2_000_000),
                Calls(across, Operation.ALL_REDUCE, "float32", 2, 16_000),
            ),
        )
        (tmp_path / f"rank-{rank}.json").write_bytes(profile.encoded(part))
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    return tmp_path


@pytest.fixture
def whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Their profile as a file."""
    assert run("profile", str(folder)) == 0
    path = folder / "profile.json"
    path.write_text(capsys.readouterr().out)
    return path


def test_ranks_merge_into_one_document(whole: Path) -> None:
    found = profile.profile(whole.read_bytes())
    assert [len([*profile.groups(kind)]) for kind in found.kinds] == [2, 8]


def test_profile_predicts_a_job_of_more_replicas(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = str(whole.parent / "workload.yaml")
    assert run(*EXPLAIN, workload, "--profile", str(whole), "-o", "json") == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["communicators"] == [
        {"name": "tensor", "ranks": 8, "sentBytes": 1_000_000 * 7 // 8},
        {"name": "data", "ranks": 4, "sentBytes": 8_000 * 2 * 3 // 4},
    ]
    assert run(*EXPLAIN, workload, "-o", "json") == 0
    derived = json.loads(capsys.readouterr().out)
    assert derived["parts"]["tensor"] > measured["parts"]["tensor"] > 0
    assert derived["parts"]["matrix products"] == measured["parts"]["matrix products"]


def test_missing_rank_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rank-7.json").unlink()
    assert run("profile", str(folder)) == 2
    assert "nothing is there of rank 7, of 16 ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "{}",
            "profile.json: no profile as `railwright profile` prints it: Profile.ranks: missing",
        ),
        ("no", "expected JSON"),
    ],
)
def test_malformed_profile_is_refused(
    whole: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    whole.write_text(content)
    workload = str(whole.parent / "workload.yaml")
    assert run(*EXPLAIN, workload, "--profile", str(whole)) == 2
    assert words in capsys.readouterr().err


def test_profile_of_another_job_is_refused(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = whole.parent / "workload.yaml"
    workload.write_text(WORKLOAD.replace("tensor: 8, data: 4", "tensor: 4, data: 8"))
    assert run(*EXPLAIN, str(workload), "--profile", str(whole)) == 2
    output = capsys.readouterr().err
    assert "--profile: ranks 0, 1, 2, 3, 4, 5, 6, 7 are a group of the profile" in output
