"""What must be saved so that training continues bit for bit, and how it is put back.

Model and optimiser go through torch.distributed.checkpoint: each rank writes its shards, and any
number of ranks reads them. What belongs to one rank goes into a file of its own: the states of the
random generators and of the script's own objects, such as its place in the data.

When the number of ranks has changed, a rank that did not exist takes the objects' state of rank
(r mod old number), and seeds derived from rank 0's generator, the same whenever that checkpoint is
loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

import torch
from torch.distributed.checkpoint import (
    filesystem,
    state_dict_loader,
    state_dict_saver,
)
from torch.distributed.checkpoint import state_dict as sharded
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.storage import WriteResult
from torch.utils import _pytree

from railwright import (
    collectives,
    flat_parameters,
    manifest,
    optimizer_state,
    planners,
    shard_metadata,
)
from railwright.optimizer_state import KEY
from railwright.planners import MODEL

Value = TypeVar("Value")

Optimizers = torch.optim.Optimizer | Iterable[torch.optim.Optimizer]


class Stateful(Protocol):
    """A script's own object with a state, such as a data loader or a learning rate schedule."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: numbers, strings, tensors, and lists, tuples and dicts of these."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Puts the state back."""


def save_shards(
    folder: Path, model: torch.nn.Module | None, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Writes this rank's part of model and optimiser; all ranks must call it.

    Raises on all ranks: OSError, TypeError for values that are not plain, RuntimeError for a model
    on the meta device and for ranks whose parameters of one name differ, and what the model's own
    ``state_dict`` raises.
    """
    if model is None:
        return
    layout, writer = _layout(model), _Writer(folder, sync_files=True)

    def collect() -> dict[str, Any]:
        values = _values(model)
        # Each as one value: torch would read back only the parts that the layer has by then.
        values |= {name: (values[name],) for name in _extra_states(values)}
        return {MODEL: values, KEY: layout.collect(model, optimizers)}

    state = _on_all_ranks(collect)
    values = state[MODEL]
    # Else torch takes each from another rank.
    for name in collectives.from_rank_zero(lambda: _buffers(model, values)):
        if collectives.rank() > 0:
            values.pop(name, None)
    with _errors_as_exceptions():
        state_dict_saver.save(state, storage_writer=writer, planner=planners.SavePlanner())


def load_shards(
    folder: Path, model: torch.nn.Module | None, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Puts back model and optimiser; all ranks must call it.

    Raises OSError, ``shard_metadata.MetadataError`` where the checkpoint holds what torch does not
    write, and RuntimeError where model or optimiser differ from the saved ones, or the model is on
    the meta device.
    """
    if model is None:
        return
    layout = _layout(model)
    saved = _on_all_ranks(lambda: shard_metadata.read(folder))
    extra = dict[str, Any]()

    def placeholders() -> dict[str, Any]:
        values = _values(model)
        extra.update((name, values[name]) for name in _extra_states(values))
        values |= dict.fromkeys(extra, ())
        return {MODEL: values, **layout.placeholders(model, optimizers, saved)}

    state = _on_all_ranks(placeholders)
    with _errors_as_exceptions():
        state_dict_loader.load(
            state,
            storage_reader=shard_metadata.Reader(folder, saved),
            planner=planners.LoadPlanner(),
        )

    def put_back() -> None:
        values = state[MODEL]
        values |= {name: _where(own, values[name][0]) for name, own in extra.items()}
        sharded.set_model_state_dict(model, values)
        layout.put_back(model, optimizers, saved, state)

    _on_all_ranks(put_back)


def save_rank(folder: Path, rank: int, others: Mapping[str, Stateful]) -> list[str]:
    """Writes what is this rank's alone; returns the names of all files this rank has written.

    Raises OSError, and TypeError when an object's state holds more than plain values.
    """
    state = {
        "random": _generators(),
        "others": {name: other.state_dict() for name, other in others.items()},
    }
    content = planners.dump_plain(state, name="state")
    manifest.write_durably(folder / _rank_file(rank), content.getvalue())
    has_shards = (folder / shard_metadata.FILE).exists()
    shared = (shard_metadata.FILE,) if rank == 0 and has_shards else ()
    shards = [path.name for path in folder.glob(f"__{rank}_*")]
    return [*shards, *shared, _rank_file(rank)]


def load_rank(
    folder: Path,
    rank: int,
    *,
    saved_world_size: int,
    others: Mapping[str, Stateful],
    is_own: bool,
) -> None:
    """Puts back what is this rank's alone, last of all: loading must not use up random numbers. The
    checkpoint of another group has none for this one.

    Raises RuntimeError where the objects have other names than those that this rank saved.
    """
    state = planners.load_plain(folder / _rank_file(rank % saved_world_size))
    names = state["others"].keys()
    # A new rank takes the state of one that may have had more objects.
    if others.keys() - names or (is_own and rank < saved_world_size and names - others.keys()):
        raise RuntimeError(
            f"the checkpoint has the states of {_listed(names)}, and the Checkpointer got "
            f"{_listed(others)}: pass each object by the name under which it was saved, and for "
            "one that is no longer needed an object that ignores its state"
        )
    for name, other in others.items():
        other.load_state_dict(state["others"][name])
    if not is_own:
        return
    if rank < saved_world_size:
        _set_generators(state["random"])
    else:
        first = planners.load_plain(folder / _rank_file(0))["random"]["torch"]
        _seed_generators(f"{rank}".encode() + bytes(first.tolist()))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no object"


def _rank_file(rank: int) -> str:
    return f"rank-{rank}.pt"


def _buffers(model: torch.nn.Module, values: Mapping[str, Any]) -> list[str]:
    """The buffers that are not sharded: of such as each rank has, DistributedDataParallel goes on
    with those of rank 0."""
    names = [optimizer_state.name_of(model, name) for name, _ in model.named_buffers()]
    return [name for name in names if type(values.get(name)) is torch.Tensor]


def _values(model: torch.nn.Module) -> dict[str, Any]:
    """Parameters, buffers and extra states by name. Raises RuntimeError for those on the meta
    device, and for those that DeepSpeed has elsewhere."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_tensor"):
            raise RuntimeError(
                f"model: the values of {name} are in objects of DeepSpeed (ZeRO stage 3), expected "
                "them in the model: use FSDP, or DeepSpeed's own save_checkpoint"
            )
    values: dict[str, Any] = sharded.get_model_state_dict(model)
    for name, value in values.items():
        if getattr(value, "device", None) == torch.device("meta"):
            raise RuntimeError(
                f"model: {name} is on the meta device and has no values, expected another device: "
                'call model.to_empty(device="cpu"), or "cuda", before load and save'
            )
    return values


def _extra_states(values: Mapping[str, Any]) -> list[str]:
    """The names under which layers have states of their own."""
    return [name for name in values if name.rpartition(".")[2] == "_extra_state"]


def _where(own: Any, saved: Any) -> Any:
    """The saved state of a layer, with its tensors on the device of those of its own state."""
    devices = (each.device for each in _pytree.tree_leaves(own) if isinstance(each, torch.Tensor))
    device = next(devices, torch.device("cpu"))
    return _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), saved)


class _Writer(filesystem.FileSystemWriter):
    """Raises the OSError of a full disk. torch then cannot end its file either, and raises that."""

    def write_data(self, *args: Any, **kwargs: Any) -> torch.futures.Future[list[WriteResult]]:
        """Writes this rank's files."""
        try:
            return super().write_data(*args, **kwargs)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise OSError(*error.__context__.args) from error
            raise


def _layout(model: torch.nn.Module) -> ModuleType:
    """The module that collects and puts back what the optimizers of this model hold."""
    return flat_parameters if flat_parameters.are_used(model) else optimizer_state


def _on_all_ranks(work: Callable[[], Value]) -> Value:
    """What ``work`` returns here. What one rank cannot do must not leave the others in torch's
    collectives."""
    value: list[Value] = []
    collectives.from_all(lambda: value.append(work()))
    return value[0]


@contextlib.contextmanager
def _errors_as_exceptions() -> Iterator[None]:
    """Errors as a script expects them, and no warning of torch that this process is alone. Raises
    the first rank's error: torch itself raises what is no Exception."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            yield
        except CheckpointException as failed:
            rank, (error, _) = min(failed.failures.items(), key=operator.itemgetter(0))
            if isinstance(error, OSError):
                raise OSError(f"rank {rank}: {error}") from failed
            raise error from failed


def _generators() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (name, keys.tolist(), *rest)
    return states


def _set_generators(states: Mapping[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def _seed_generators(material: bytes) -> None:
    seed = int.from_bytes(hashlib.sha256(material).digest()[:8], "big")
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
