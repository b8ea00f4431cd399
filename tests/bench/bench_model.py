"""How far the model of a step's time is from what others measured; nothing in it is fitted to that.

Progress goes to stderr, one JSON object to stdout.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench import bars
from railwright_scheduler.cost import collectives, step
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import DGX_A100, DGX_H100, HGX_H800, Algorithm
from railwright_scheduler.model.workload import (
    Parallelism,
    Precision,
    Recipe,
    Recompute,
    Routing,
    Sharding,
    Transformer,
)

DATA = Path(__file__).resolve().parents[1] / "data"
ADAPTER, NVLINK = 48.5e9, 450e9
"""What the published efficiencies are shares of, in bytes per second."""

RINGS = (Algorithm.PXN,)
"""They are those of rings, by the code they were published with: see tests/data/README.md."""

MODELS = {
    "Llama3-8B": Transformer(32, 4096, 32, 8, 128, 14_336, 128_256, gated=True),
    "Llama3-70B": Transformer(80, 8192, 64, 8, 128, 28_672, 128_256, gated=True),
    "Llama3.1-405B": Transformer(126, 16_384, 128, 8, 128, 53_248, 128_256, gated=True),
    "GPT-OSS-120B": Transformer(
        36, 2880, 64, 8, 64, 2880, 201_088, gated=True, biased=True, experts=128, chosen=4
    ),
    "Qwen3-30B-A3B": Transformer(
        48, 2048, 32, 4, 128, 768, 151_936, gated=True, experts=128, chosen=8
    ),
    "Qwen3-235B-A22B": Transformer(
        94, 4096, 64, 4, 128, 1536, 151_936, gated=True, experts=128, chosen=8
    ),
}


class Run(NamedTuple):
    """One of the published runs on H100."""

    release: str
    model: str


DISPUTED = {Run("bridge-25.11", "GPT-OSS-120B"), Run("bridge-25.11", "Qwen3-30B-A3B")}
"""What was published of these contradicts itself: see tests/data/README.md."""

MENDED = {Run("bridge-25.11", "GPT-OSS-120B"): {"micro_batch": "1"}}
"""As the recipe of the time has it, where it cannot have been as published: see there too."""

Row = Mapping[str, str]


BOUNDS = {
    "megatron_a100_mean_error": 0.08,
    "h100_runs_mean_error": 0.15,
    "allreduce_mean_error": 0.10,
    "allreduce_median_error": 0.06,
    "alltoall_mean_error": 0.15,
    "nvlink_mean_error": 0.15,
    "deepep_mean_error": 0.15,
}


def main() -> int:
    efficiencies = _rows("collective_efficiency.csv")
    reduced = list(_errors("all_reduce", "network", efficiencies, _all_reduce))
    runs = _rows("training_runs.csv")
    exchanges = _rows("expert_exchange.csv")
    megatron = list(_megatron(runs))
    bridge = dict(_bridge(runs, MENDED))
    labelled = bridge | dict(_bridge([row for row in runs if _run(row) in MENDED], {}))
    experts = [error for run, error in bridge.items() if MODELS[run.model].experts]
    dense = [error for run, error in bridge.items() if not MODELS[run.model].experts]
    undisputed = [error for run, error in bridge.items() if run not in DISPUTED]
    nvlink = [
        *_errors("all_reduce", "nvlink", efficiencies, _all_reduce),
        *_errors("all_to_all", "nvlink", efficiencies, _all_to_all),
    ]
    figures = {
        "megatron_a100_mean_error": statistics.mean(megatron),
        "megatron_a100_max_error": max(megatron),
        "h100_runs_mean_error": statistics.mean(bridge.values()),
        "h100_as_labelled_mean_error": statistics.mean(labelled.values()),
        "h100_dense_mean_error": statistics.mean(dense),
        "h100_experts_mean_error": statistics.mean(experts),
        "h100_undisputed_mean_error": statistics.mean(undisputed),
        "allreduce_mean_error": statistics.mean(reduced),
        "allreduce_median_error": statistics.median(reduced),
        "alltoall_mean_error": statistics.mean(
            _errors("all_to_all", "network", efficiencies, _all_to_all)
        ),
        "nvlink_mean_error": statistics.mean(nvlink),
        "deepep_mean_error": statistics.mean(_exchanges(exchanges, "deepep-2025-02")),
        "deepep_later_mean_error": statistics.mean(_exchanges(exchanges, "deepep-later")),
    }
    return bars.publish({name: round(error, 4) for name, error in figures.items()}, at_most=BOUNDS)


def _rows(name: str) -> list[Row]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def _errors(
    collective: str, scope: str, rows: Iterable[Row], efficiency: Callable[[int, Group], float]
) -> Iterator[float]:
    """The relative error of each predicted efficiency."""
    for row in rows:
        if (row["collective"], row["scope"]) == (collective, scope):
            nodes, per_node = int(row["nodes"]), int(row["gpus_per_node"])
            group = Group(replace(DGX_H100, algorithms=RINGS), nodes, per_node)
            published = float(row["busbw_over_nominal"])
            predicted = efficiency(int(row["bytes"]), group)
            _log(f"{collective} {row['bytes']} bytes, {nodes} nodes", predicted, published)
            yield abs(predicted / published - 1)


def _all_reduce(size: int, group: Group) -> float:
    moved = 2 * size * (group.ranks - 1) / group.ranks
    nominal = NVLINK if group.nodes == 1 else ADAPTER * group.per_node
    return moved / collectives.all_reduce_s(size, group) / nominal


def _all_to_all(size: int, group: Group) -> float:
    moved = size * (group.ranks - 1) / group.ranks
    beyond = (group.ranks - group.per_node) / (group.ranks - 1)
    nominal = NVLINK if group.nodes == 1 else ADAPTER / beyond
    return moved / collectives.all_to_all_s(size, group) / nominal


def _exchanges(rows: Iterable[Row], source: str) -> Iterator[float]:
    """Of tokens with experts: bytes are counted as tests/data/README.md says."""
    machine, routing = HGX_H800, Routing(experts=256, chosen=8, nodes=4)
    bytes_a_value = {"dispatch": 1 + 4 / 128, "combine": 2}
    for row in rows:
        if row["source"] != source:
            continue
        group = Group(machine, int(row["nodes"]), int(row["gpus_per_node"]))
        size = 4096 * 7168 * bytes_a_value[row["direction"]]
        nodes, ranks = routing.reached(group.nodes, group.per_node)
        logical = size * (nodes if row["link"] == "network" else ranks)
        predicted = logical / collectives.dispatch_s(size, routing, group) / 1e9
        published = float(row["logical_gb_per_s"])
        _log(f"{source} {row['direction']}, {group.ranks} ranks", predicted, published)
        yield abs(predicted / published - 1)


def _megatron(rows: Iterable[Row]) -> Iterator[float]:
    for row in rows:
        if row["source"] == "megatron-2021":
            predicted, published = _megatron_rate(row), float(row["model_tflops_per_gpu"])
            _log(row["model"], predicted, published)
            yield abs(predicted / published - 1)


def _megatron_rate(row: Row) -> float:
    """10^12 operations a second and GPU, counted as its authors do, recomputed ones included."""
    found = re.fullmatch(r".*: (\d+) layers; hidden (\d+); heads (\d+)", row["model"])
    assert found is not None, row["model"]
    layers, hidden, heads = map(int, found.groups())
    gpus, tensor, pipeline = int(row["gpus"]), int(row["tp"]), int(row["pp"])
    model = Transformer(
        layers,
        hidden,
        heads,
        heads,
        hidden // heads,
        4 * hidden,
        51_200,
        biased=True,
        tied=True,
        positions=int(row["sequence"]),
    )
    split = Parallelism(
        tensor=tensor,
        pipeline=pipeline,
        virtual=int(row["virtual_pp"]),
        data=gpus // tensor // pipeline,
    )
    recipe = Recipe(
        sequence=int(row["sequence"]),
        micro_batch=int(row["micro_batch"]),
        global_batch=int(row["global_batch"]),
        recompute=Recompute.LAYERS,
        fused_attention=False,
    )
    attention = recipe.sequence / (6 * hidden)
    logits = model.vocabulary / (16 * layers * hidden)
    tokens = recipe.global_batch * recipe.sequence
    operations = 96 * tokens * layers * hidden**2 * (1 + attention + logits)
    return operations / gpus / step.predict(model, split, recipe, DGX_A100).total / 1e12


def _run(row: Row) -> Run:
    return Run(row["source"], row["model"])


def _bridge(
    rows: Iterable[Row], mended: Mapping[Run, Mapping[str, str]]
) -> Iterator[tuple[Run, float]]:
    for row in rows:
        if row["source"].startswith("bridge-"):
            run, published = _run(row), float(row["tokens_per_second_per_gpu"])
            predicted = _bridge_rate({**row, **mended.get(run, {})})
            _log(f"{run.release} {run.model}", predicted, published)
            yield run, abs(predicted / published - 1)


def _bridge_rate(row: Row) -> float:
    """Tokens a second and GPU."""
    model = MODELS[row["model"]]
    gpus, tensor, pipeline = int(row["gpus"]), int(row["tp"]), int(row["pp"])
    context, sharded = int(row["cp"]), int(row["fsdp"])
    split = Parallelism(
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        virtual=int(row["virtual_pp"]),
        data=gpus // tensor // pipeline // context,
        expert=int(row["ep"]),
    )
    recipe = Recipe(
        sequence=int(row["sequence"]),
        micro_batch=int(row["micro_batch"]),
        global_batch=int(row["global_batch"]),
        precision=Precision.FP8 if row["precision"] == "fp8" else Precision.HALF,
        sequence_parallel=tensor > 1,
        sharding=Sharding.PARAMETERS if sharded else Sharding.OPTIMIZER,
        # Recipes of dense models overlap what tensor-parallel ranks send, those of experts do not.
        overlap_tensor=not model.experts,
        fused_loss=True,
        overlap=True,
        # Megatron can where the pipeline is interleaved, and these recipes do.
        overlap_experts=split.virtual > 1,
    )
    found = step.predict(model, split, recipe, DGX_H100)
    parts = ", ".join(f"{name} {seconds / found.total:.0%}" for name, seconds in found.parts)
    print(f"  {parts}", file=sys.stderr)
    return recipe.global_batch * recipe.sequence / gpus / found.total


def _log(what: str, predicted: float, published: float) -> None:
    error = predicted / published - 1
    print(f"{what}: {predicted:.3g}, published {published:.3g} ({error:+.1%})", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
