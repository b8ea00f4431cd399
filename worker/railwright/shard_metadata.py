"""Read what torch.distributed.checkpoint wrote of a checkpoint, without running any of it.

torch keeps the place of each tensor in a pickle, ``.metadata``, and reads it, and whatever else is
no tensor, with loaders that call what the file names. A checkpoint lies on a volume that others may
write. So the pickle is read here with the classes that torch puts there and no others.
``training_state`` calls this.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata

FILE = ".metadata"
BYTES_MAX = 4 * 2**30
"""About 20 million tensor shards; a larger file was not written by any run here."""


class MetadataError(Exception):
    """Why a checkpoint's metadata is not read."""


def _path(*parts: str) -> str:
    return os.path.join("", *parts)


def _layout(name: str) -> torch.layout:
    layout = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(layout, torch.layout):
        raise MetadataError(f"{name!r} is no layout of tensors")
    return layout


_CLASSES: tuple[type, ...] = (
    metadata.Metadata,
    metadata.StorageMeta,
    metadata.TensorStorageMetadata,
    metadata.BytesStorageMetadata,
    metadata.ChunkStorageMetadata,
    metadata.TensorProperties,
    metadata._MEM_FORMAT_ENCODING,
    metadata.MetadataIndex,
    filesystem._StorageInfo,
    torch.Size,
)
_ALLOWED: dict[tuple[str, str], Any] = {
    **{(each.__module__, each.__qualname__): each for each in _CLASSES},
    ("torch.serialization", "_get_layout"): _layout,
    # Where it was written. Nothing is read by it.
    ("pathlib", "PosixPath"): _path,
    ("pathlib._local", "PosixPath"): _path,
}


class _Unpickler(pickle.Unpickler):
    """Finds the classes above and the types of numbers, and refuses all else."""

    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None and module == "torch" and name.isidentifier():
            found = getattr(torch, name, None)
            found = found if isinstance(found, torch.dtype) else None
        if found is None:
            raise MetadataError(f"{module}.{name} is nothing that a checkpoint holds")
        return found


def read(folder: Path) -> metadata.Metadata:
    """The metadata of the checkpoint in this folder. Raises MetadataError, OSError."""
    path = folder / FILE
    before = _attributes()
    with path.open("rb") as file, contextlib.ExitStack() as restored:
        restored.callback(_restore, before)
        if os.fstat(file.fileno()).st_size > BYTES_MAX:
            raise MetadataError(f"{path} was not read: it has more than {BYTES_MAX} bytes")
        try:
            found = _Unpickler(file).load()
            # A pickle can also set attributes of the classes that it names.
            if _attributes() != before:
                raise MetadataError("it changes classes of torch")
            _check(found, folder)
        except MetadataError as error:
            raise MetadataError(f"{path} was not read: {error}") from error
        except Exception as error:
            # Whatever torch's constructors make of values that are not theirs.
            error.add_note(f"{path} is no metadata of a checkpoint")
            raise
    assert isinstance(found, metadata.Metadata)
    return found


def _attributes() -> dict[type, dict[str, Any]]:
    return {each: dict(vars(each)) for each in _CLASSES}


def _restore(before: dict[type, dict[str, Any]]) -> None:
    """Undo what a pickle that is refused has set."""
    for each, attributes in before.items():
        for name, value in dict(vars(each)).items():
            if name not in attributes:
                delattr(each, name)
            elif value is not attributes[name]:
                setattr(each, name, attributes[name])


def _check(found: object, folder: Path) -> None:
    """Nothing outside the folder is read, and nothing by an extension. Raises MetadataError."""
    if not isinstance(found, metadata.Metadata) or not isinstance(found.storage_data, dict):
        raise MetadataError("it holds no metadata")
    for info in found.storage_data.values():
        if not isinstance(info, filesystem._StorageInfo) or info.transform_descriptors:
            raise MetadataError("its data has transforms")
        name = info.relative_path
        if not isinstance(name, str) or Path(name).name != name:
            raise MetadataError(f"{name!r} is not a file of this folder")


class Reader(filesystem.FileSystemReader):
    """Reads the shards of a checkpoint whose metadata was read before."""

    def __init__(self, folder: Path, found: metadata.Metadata) -> None:
        super().__init__(folder)
        self._found = found

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> metadata.Metadata:
        """What was read before."""
        return self._found
