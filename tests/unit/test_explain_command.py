"""``railwright explain``: a workload's file in, the time of a step and its parts out."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import networkx as nx
import pytest
import yaml

from architecture import tree
from fixtures.command import run

EXAMPLES = tree.ROOT / "examples/workloads"
SMALL = """\
transformer: {layers: 8, hidden: 1024, heads: 16, feedForward: 4096, vocabulary: 32000}
parallelism: {tensor: 2, pipeline: 2, data: 4}
training: {sequence: 2048, globalBatch: 32, sequenceParallel: true}
"""
DGX = ("--machine", "DGX H100")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run("explain", *arguments) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run("explain", *arguments) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_parts_sum_to_the_step_largest_first(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.loads(output(capsys, str(path), *DGX, "-o", "json"))
    parts = list(answer["parts"].values())
    assert parts == sorted(parts, reverse=True)
    text = output(capsys, str(path), *DGX)
    shares = [float(share) for share in re.findall(r" ([0-9.]+)%$", text, re.MULTILINE)]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_parameter_servers_are_counted_by_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "served.yaml"
    path.write_text(SMALL.replace("data: 4", "data: 4, servers: ps"))
    steps_s = [
        json.loads(output(capsys, str(path), *DGX, f"--servers={count}", "-o", "json"))["parts"][
            "servers"
        ]
        for count in (1, 2)
    ]
    assert steps_s[0] == pytest.approx(2 * steps_s[1], rel=0.01)
    words = "--servers 0: parallelism.servers is ps, expected the number of its ranks"
    assert words in refused(capsys, str(path), *DGX)


def test_servers_without_a_role_are_refused(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--servers 2: parallelism.servers is not set, expected 0"
    assert words in refused(capsys, str(small), *DGX, "--servers=2")


def test_days_follow_from_tokens_of_a_step(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(output(capsys, str(small), *DGX, "-o", "json", "--tokens", "1e12"))
    again = yaml.safe_load(output(capsys, str(small), *DGX, "-o", "yaml", "--tokens", "1e12"))
    assert again == answer
    steps = 1e12 / (32 * 2048)
    assert answer["days"] == pytest.approx(steps * answer["stepSeconds"] / 86_400)
    assert " days\n" in output(capsys, str(small), *DGX, "--tokens", "1e12")


def test_scale_adds_replicas_with_the_same_work(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.loads(output(capsys, str(small), *DGX, "-o", "json", "--scale", "2,16,128"))
    assert [each["nodes"] for each in answer["scale"]] == [2, 16, 128]
    assert answer["scale"][0]["stepSeconds"] == answer["stepSeconds"]
    benchmarks = [each["tokensPerRank"] for each in answer["scale"]]
    assert benchmarks == sorted(benchmarks, reverse=True)
    assert benchmarks[-1] > 0.3 * benchmarks[0]


def test_graph_has_ranks_and_bytes_between_them(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = nx.read_graphml(io.BytesIO(output(capsys, str(small), *DGX, "-o", "graphml").encode()))
    assert graph.number_of_nodes() == 16
    tensor, pipeline = graph.edges["0", "1"]["bytes"], graph.edges["0", "8"]["bytes"]
    assert tensor > pipeline > 0
    assert not graph.has_edge("0", "15")


@pytest.mark.parametrize(
    ("changed", "into", "rule"),
    [
        ("globalBatch: 32", "globalBatch: 33", "expected a multiple of 4 (micro-batches of all"),
        ("tensor: 2", "tensor: 3", "transformer.heads is 16: expected a multiple of 3"),
        (
            "pipeline: 2",
            "pipeline: 16",
            "transformer.layers is 8: expected 16, one a stage, or more",
        ),
        (
            "layers: 8",
            "layers: eight",
            "line 1: transformer.layers: Input should be a valid integer",
        ),
        ("sequence: 2048, ", "", "line 3: training.sequence: Field required"),
        ("feedForward: 4096", "feedForward: 4096, experts: 8", "expertsPerToken is 0 of 8"),
        ("sequenceParallel: true", "precision: int4", "line 3: training.precision: Input should"),
        ("transformer:", "transformer: &m", "line 1: anchors and aliases are not read"),
        (
            "globalBatch: 32",
            "globalBatch: 32, recomput: Layers",
            "training.recomput: unknown field",
        ),
        ("tensor: 2", "tensr: 2", "line 2: parallelism.tensr: unknown field, the nearest is"),
        ("training:", "trainning: {}\ntraining:", "line 3: trainning: unknown field, the nearest"),
        (
            "vocabulary: 32000",
            "vocabulary: 32000, xyzzy: 1",
            "line 1: transformer.xyzzy: unknown field",
        ),
    ],
)
def test_invalid_workload_names_line_and_legal_value(
    small: Path, capsys: pytest.CaptureFixture[str], changed: str, into: str, rule: str
) -> None:
    small.write_text(SMALL.replace(changed, into))
    error = refused(capsys, str(small), *DGX)
    assert f"{small}, line " in error
    assert rule in error


def test_unknown_key_names_nearest_key(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``recomput`` was ignored once, and the predicted step was 30 % too short."""
    small.write_text(SMALL.replace("globalBatch: 32", "globalBatch: 32, recomput: Layers"))
    error = refused(capsys, str(small), *DGX)
    rule = "training.recomput: unknown field, the nearest is training.recompute"
    assert error == f"railwright: {small}, line 3: {rule}\n"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--scale", "0"), "expected numbers of nodes, such as 8,64,512"),
        (("--scale", "9" * 5000), "expected numbers of nodes, such as 8,64,512"),
        (("--tokens", "nan"), "expected 1 to 1e+18"),
        (("--tiers", "3"), "--tiers and --sharp are of a network: --network InfiniBand HDR"),
        (("--network", "RoCE", "--sharp"), "--sharp: switches of RoCE do not reduce data"),
    ],
)
def test_invalid_option_is_refused(
    small: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], rule: str
) -> None:
    assert rule in refused(capsys, str(small), *DGX, *arguments)


def test_unknown_machine_or_option_names_the_nearest(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, str(small), "--machine", "DGX H10")
    assert "'DGX H10' is none of " in error
    assert "the nearest is 'DGX H100'" in error
    assert "(Possible options: --machine)" in refused(capsys, str(small), "--machin", "x")
    assert run("explian") == 2
    assert "the nearest is 'explain'" in capsys.readouterr().err


def test_scale_to_a_part_of_a_replica_is_refused(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small.write_text(SMALL.replace("tensor: 2, pipeline: 2, data: 4", "tensor: 16, data: 2"))
    error = refused(capsys, str(small), *DGX, "--scale", "3")
    assert "come by 16 ranks, such as 4 nodes" in error


EXPERTS = """\
transformer:
  {layers: 8, hidden: 1024, heads: 16, feedForward: 512, vocabulary: 32000,
   experts: 64, expertsPerToken: 8}
parallelism: {data: 32, expert: 16}
training: {sequence: 2048, globalBatch: 32}
"""


@pytest.mark.parametrize(
    ("changed", "into", "rule"),
    [
        (
            "expert: 16",
            "expert: 16, replicas: 4",
            "parallelism.data is 32: expected a multiple of 64",
        ),
        ("expert: 16", "expert: 24", "transformer.experts is 64: expected a multiple of 24"),
        ("data: 32,", "data: 8, tensor: 4,", "expected training.sequenceParallel: true, or 1"),
        (
            "hidden: 1024",
            "hidden: 1000",
            "transformer.hidden is 1000: expected a multiple of 16 (heads",
        ),
        ("data: 32", "data: 4, context: 32", "expected a multiple of 32 (tensor- and context"),
    ],
)
def test_uneven_experts_and_heads_are_refused(
    small: Path, capsys: pytest.CaptureFixture[str], changed: str, into: str, rule: str
) -> None:
    small.write_text(EXPERTS.replace(changed, into).replace("2048,", "2048, context: Ulysses,"))
    assert rule in refused(capsys, str(small), *DGX)


def test_network_adds_latency_and_sharp_reduces(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (str(small), *DGX, "--scale", "64", "-o", "json", "--network", "InfiniBand HDR")
    plain, deep, reducing = (
        json.loads(output(capsys, *asked, *more)) for more in ((), ("--tiers", "3"), ("--sharp",))
    )
    assert plain["latencySeconds"] == pytest.approx(0.73e-6)
    assert deep["latencySeconds"] == pytest.approx(1.25e-6)
    steps = [each["scale"][0]["stepSeconds"] for each in (reducing, plain, deep)]
    assert steps == sorted({*steps})
    text = output(capsys, *asked[:3], *asked[-2:], "--tiers", "3")
    assert "\n1.25 us between the farthest two\n" in text


def test_machine_without_the_precision_is_refused(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fp8 = str(EXAMPLES / "llama3-70b.yaml")
    error = refused(capsys, fp8, "--machine", "DGX A100")
    assert "--machine DGX A100: multiplies in 16-bit, not 8-bit" in error
    small.write_text(SMALL.replace("sequenceParallel: true", "precision: FP32, gradientBytes: 4"))
    error = refused(capsys, str(small), *DGX)
    assert "--machine DGX H100: multiplies in 16-bit, 8-bit, not 32-bit" in error
    limited = EXPERTS.replace("expertsPerToken: 8", "expertsPerToken: 40, nodesPerToken: 1")
    small.write_text(limited.replace("globalBatch: 32", "globalBatch: 32, forwarded: true"))
    assert "1 of 2 nodes have no more than 32 experts" in refused(capsys, str(small), *DGX)


def test_experts_scale_by_whole_groups(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text(EXPERTS)
    assert "16 ranks, such as 2 nodes" in refused(capsys, str(small), *DGX, "--scale", "1")
    answer = json.loads(output(capsys, str(small), *DGX, "--scale", "2,4,6", "-o", "json"))
    assert [each["nodes"] for each in answer["scale"]] == [2, 4, 6]


def test_stage_with_the_most_layers_decides(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def products(layers: int) -> float:
        small.write_text(SMALL.replace("layers: 8", f"layers: {layers}"))
        answer = json.loads(output(capsys, str(small), *DGX, "-o", "json"))
        return float(answer["parts"]["matrix products"])

    assert products(9) == products(10) > products(8)


def test_context_parallel_ranks_share_unfused_attention(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def memory(context: int) -> float:
        split = f"tensor: 2, context: {context}, data: 4"
        text = SMALL.replace("tensor: 2, pipeline: 2, data: 4", split)
        small.write_text(text.replace("globalBatch: 32", "globalBatch: 32, fusedAttention: false"))
        answer = json.loads(output(capsys, str(small), *DGX, "-o", "json"))
        return float(answer["parts"]["memory"])

    assert memory(4) < 0.4 * memory(1)


@pytest.mark.parametrize(
    ("said_more", "part"), [("fusedLoss: true", "output"), ("overlapTensor: true", "tensor")]
)
def test_fused_or_overlapped_work_takes_less(
    said_more: str, part: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def seconds(text: str) -> float:
        small.write_text(text)
        answer = json.loads(output(capsys, str(small), *DGX, "-o", "json"))
        return float(answer["parts"][part])

    more = SMALL.replace("globalBatch: 32", f"globalBatch: 32, {said_more}")
    assert seconds(more) < 0.7 * seconds(SMALL)


def test_several_machines_follow_each_other_in_equal_number(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks 0 to 7 are the first stage's: the last one is worse off with the slower kind."""
    older = ("--machine", "DGX A100")
    text = output(capsys, str(small), *older, *DGX)
    assert text.startswith("16 ranks on 1 × DGX A100 and 1 × DGX H100: a step of")
    took_s = [
        json.loads(output(capsys, str(small), *each, "-o", "json"))["stepSeconds"]
        for each in (DGX, (*older, *DGX), (*DGX, *older), older)
    ]
    assert took_s == sorted(took_s)
    assert len({*took_s}) == 4
    assert "--machine: 3 for 2 nodes, expected no more" in refused(
        capsys, str(small), *older, *DGX, *older
    )
