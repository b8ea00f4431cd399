"""Values of a checkpoint beside tensors: numbers, text, and lists, tuples and dicts of these.

They are read without running any code. So a value that could not be read is refused when it is
saved, and not after the first failure. ``training_state`` and ``planners`` call this.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils import _pytree


def dump(value: Any, *, name: str) -> io.BytesIO:
    """The value as torch.save writes it; numbers of numpy become Python's, as a learning rate that
    numpy computed. Raises TypeError for a part that could not be read back, with its place."""

    def plain(path: tuple[Any, ...], leaf: Any) -> Any:
        if isinstance(leaf, DTensor):
            raise TypeError(
                f"{name}{_pytree.keystr(path)}: seen a DTensor, which only the same number of "
                "ranks could load, expected a tensor: pass the module that holds it in the model, "
                "as torch.nn.ModuleDict of both, or its full_tensor()"
            )
        numpy = sys.modules.get("numpy")
        return leaf.item() if numpy is not None and isinstance(leaf, numpy.generic) else leaf

    value = _pytree.tree_map_with_path(plain, value)
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        load(buffer)
    except Exception as error:
        # Of memory or a device, and not of the value.
        if isinstance(error, (MemoryError, OSError, RuntimeError)):
            raise
        parts: Any = value.items() if isinstance(value, dict) else ()
        for key, part in enumerate(value) if isinstance(value, list | tuple) else parts:
            dump(part, name=f"{name}[{key!r}]")
        # torch's own text is long, and about files of others.
        raise TypeError(
            f"{name}: seen {type(value).__module__}.{type(value).__qualname__}, expected numbers, "
            "text, tensors, and lists, tuples and dicts of these"
        ) from None
    buffer.seek(0)
    return buffer


def load(source: Path | io.BytesIO) -> Any:
    """Raises pickle.UnpicklingError where the value is none of numbers, text and tensors."""
    return torch.load(source, map_location="cpu", weights_only=True)
