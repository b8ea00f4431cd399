"""What torch.distributed.checkpoint writes and reads: plain values, and all of the model.

torch itself leaves out what only the checkpoint has, and of ranks that have values of one name it
saves any. Its plans of all ranks come together on rank 0, so both are found there, before anything
is written or read. ``training_state`` calls this.
"""

from __future__ import annotations

import array
import dataclasses
import io
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import default_planner, metadata, planner
from torch.distributed.tensor import DTensor
from torch.utils import _pytree

MODEL = "model"

SAMPLES = 4
"""Elements of each shard that ranks compare: two tensors that only look the same agree in few."""

DRIFT_MAX, LAST_PLACES = 0.001, 8
"""Relative to the largest element, and in units of its last place, whatever is more: replicas on
devices of two kinds drift apart by some."""


class SavePlanner(default_planner.DefaultSavePlanner):
    """Plans as torch does, writes plain values only, and compares the tensors of the model that
    several ranks have."""

    def create_local_plan(self) -> planner.SavePlan:
        """With elements of each of these tensors, for rank 0."""
        plan = super().create_local_plan()
        samples = {
            number: _sample(self.lookup_object(item.index))
            for number, item in enumerate(plan.items)
            if item.tensor_data is not None and item.index.fqn.startswith(f"{MODEL}.")
        }
        return dataclasses.replace(plan, planner_data=(plan.planner_data, samples))

    def create_global_plan(
        self, all_plans: list[planner.SavePlan]
    ) -> tuple[list[planner.SavePlan], metadata.Metadata]:
        """Raises RuntimeError where ranks have different tensors of one name."""
        first: dict[metadata.MetadataIndex, tuple[int, planner.TensorWriteData, bytes]] = {}
        for rank, plan in enumerate(all_plans):
            for number, sample in plan.planner_data[1].items():
                index, data = plan.items[number].index, plan.items[number].tensor_data
                other, its, other_sample = first.setdefault(index, (rank, data, sample))
                drift_max = _drift_max(data.properties.dtype)
                if data.size != its.size or _differ(sample, other_sample, drift_max):
                    raise RuntimeError(
                        f"{index.fqn}: ranks {other} and {rank} have other values of it, expected "
                        "replicas of one: give each stage of a pipeline names of its own, as "
                        'torch.nn.ModuleDict({f"stage{number}": stage}) does'
                    )
        plans = [dataclasses.replace(plan, planner_data=plan.planner_data[0]) for plan in all_plans]
        return super().create_global_plan(plans)

    def transform_object(self, write_item: planner.WriteItem, value: Any) -> Any:
        """Raises as ``dump_plain``."""
        if write_item.type is planner.WriteItemType.BYTE_IO:
            return dump_plain(value, name=write_item.index.fqn)
        return value


class LoadPlanner(default_planner.DefaultLoadPlanner):
    """Plans as torch does, and reads plain values as such, and all of the model."""

    def create_local_plan(self) -> planner.LoadPlan:
        """Without torch's guess that a checkpoint is of torch 2.3 if it has keys that this rank
        lacks, as a rank without a shard of some parameter does."""
        assert self.metadata is not None, "torch sets it up before it plans"
        return default_planner.create_default_local_load_plan(self.state_dict, self.metadata)

    def create_global_plan(self, global_plan: list[planner.LoadPlan]) -> list[planner.LoadPlan]:
        """Raises RuntimeError where the checkpoint has of the model what no rank reads."""
        assert self.metadata is not None, "torch sets it up before it plans"
        read = {item.dest_index.fqn for plan in global_plan for item in plan.items}
        lost = sorted(
            key.removeprefix(f"{MODEL}.")
            for key, entry in self.metadata.state_dict_metadata.items()
            if key.startswith(f"{MODEL}.") and key not in read and not _is_empty(entry)
        )
        if lost:
            more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
            raise RuntimeError(
                f"Unexpected key: the checkpoint has {', '.join(lost[:3])}{more}, and the model "
                "has not: load it into the model that was saved, and take from that what you need"
            )
        return super().create_global_plan(global_plan)

    def load_bytes(self, read_item: planner.ReadItem, value: io.BytesIO) -> None:
        """Raises as ``load_plain``."""
        buffer = io.BytesIO()
        torch.save(load_plain(value), buffer)
        buffer.seek(0)
        super().load_bytes(read_item, buffer)


def dump_plain(value: Any, *, name: str) -> io.BytesIO:
    """A value beside tensors, such as numbers, text, and lists, tuples and dicts of these, as
    torch.save writes it; numbers of numpy become Python's, as a learning rate that numpy computed.
    It is read without running any code, so what could not be read is refused when it is saved.
    Raises TypeError for a part that could not be read back, with its place."""

    numpy = sys.modules.get("numpy")
    are_sharded = False

    def plain(leaf: Any) -> Any:
        nonlocal are_sharded
        are_sharded |= isinstance(leaf, DTensor)
        return leaf.item() if numpy is not None and isinstance(leaf, numpy.generic) else leaf

    value = _pytree.tree_map(plain, value)
    if are_sharded:
        leaves = _pytree.tree_leaves_with_path(value)
        path = next(path for path, leaf in leaves if isinstance(leaf, DTensor))
        raise TypeError(
            f"{name}{_pytree.keystr(path)}: seen a DTensor, which only the same number of ranks "
            "could load, expected a tensor: pass the module that holds it in the model, as "
            "torch.nn.ModuleDict of both, or its full_tensor()"
        )
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        load_plain(buffer)
    except Exception as error:
        # Of memory or a device, and not of the value.
        if isinstance(error, (MemoryError, OSError, RuntimeError)):
            raise
        parts: Any = value.items() if isinstance(value, dict) else ()
        for key, part in enumerate(value) if isinstance(value, list | tuple) else parts:
            dump_plain(part, name=f"{name}[{key!r}]")
        # torch's own text is long, and about files of others.
        raise TypeError(
            f"{name}: seen {type(value).__module__}.{type(value).__qualname__}, expected numbers, "
            "text, tensors, and lists, tuples and dicts of these"
        ) from None
    buffer.seek(0)
    return buffer


def load_plain(source: Path | io.BytesIO) -> Any:
    """Raises pickle.UnpicklingError where the value is none of numbers, text and tensors."""
    return torch.load(source, map_location="cpu", weights_only=True)


def _sample(tensor: torch.Tensor) -> bytes:
    """The first element, the last, and some between, as floats: plans of many ranks come to one.
    None of a tensor whose elements torch cannot index, as quantized ones and those of 4 bits."""
    if tensor.is_quantized:
        return b""
    last = tensor.numel() - 1
    positions = [last * each // (SAMPLES - 1) for each in range(SAMPLES)] if last >= 0 else []
    try:
        elements = tensor.detach().reshape(-1)[positions].tolist()
    except NotImplementedError:
        return b""
    return array.array("d", [each.real for each in elements]).tobytes()


def _drift_max(dtype: torch.dtype) -> float:
    """How far the elements of replicas are apart at most, relative to the largest."""
    return max(DRIFT_MAX, LAST_PLACES * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)


def _differ(sample: bytes, other: bytes, drift_max: float) -> bool:
    """Whether these are no samples of replicas; most are equal."""
    if sample == other or len(sample) != len(other):
        return sample != other
    each_pair = zip(memoryview(sample).cast("d"), memoryview(other).cast("d"), strict=True)
    pairs = [pair for pair in each_pair if not all(map(math.isnan, pair))]
    seen = (abs(element) for pair in pairs for element in pair if math.isfinite(element))
    apart_max = drift_max * max(seen, default=0.0)
    return not all(math.isclose(*pair, rel_tol=0, abs_tol=apart_max) for pair in pairs)


def _is_empty(entry: metadata.STORAGE_TYPES) -> bool:
    return isinstance(entry, metadata.TensorStorageMetadata) and entry.size.numel() == 0
