"""Values of a checkpoint beside tensors: numbers, text, and lists, tuples and dicts of these.

They are read without running any code. So a value that could not be read is refused when it is
saved, and not after the first failure. ``training_state`` calls this.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import default_planner, planner
from torch.utils import _pytree


def dump(value: Any, *, name: str) -> io.BytesIO:
    """The value as torch.save writes it; numbers of numpy become Python's, as a learning rate that
    numpy computed. Raises what torch.load raises for a value that is not plain, with its name."""
    buffer = io.BytesIO()
    torch.save(_pytree.tree_map(_python_number, value), buffer)
    buffer.seek(0)
    try:
        load(buffer)
    except Exception as error:
        error.add_note(f"{name} could not be read back")
        raise
    buffer.seek(0)
    return buffer


def load(source: Path | io.BytesIO) -> Any:
    """Raises pickle.UnpicklingError where the value is none of numbers, text and tensors."""
    return torch.load(source, map_location="cpu", weights_only=True)


class SavePlanner(default_planner.DefaultSavePlanner):
    """Plans as torch does, and writes plain values only."""

    def transform_object(self, write_item: planner.WriteItem, value: Any) -> Any:
        """Raises as ``dump``."""
        if write_item.type is planner.WriteItemType.BYTE_IO:
            return dump(value, name=write_item.index.fqn)
        return value


class LoadPlanner(default_planner.DefaultLoadPlanner):
    """Plans as torch does, and reads plain values as such."""

    def create_local_plan(self) -> planner.LoadPlan:
        """Without torch's guess that a checkpoint is of torch 2.3 if it has keys that this rank
        lacks, as a rank without a shard of some parameter does."""
        assert self.metadata is not None, "torch sets it up before it plans"
        return default_planner.create_default_local_load_plan(self.state_dict, self.metadata)

    def load_bytes(self, read_item: planner.ReadItem, value: io.BytesIO) -> None:
        """Raises as ``load``."""
        buffer = io.BytesIO()
        torch.save(load(value), buffer)
        buffer.seek(0)
        super().load_bytes(read_item, buffer)


def _python_number(leaf: Any) -> Any:
    numpy = sys.modules.get("numpy")
    return leaf.item() if numpy is not None and isinstance(leaf, numpy.generic) else leaf
