"""Optimizers in a checkpoint, by the names of their parameters.

    optimizer.state.<parameter>.…      what an optimizer holds of a parameter, however nested
    optimizer.groups.<parameter>.…     the options of the group that begins with this parameter, and
                                       the names of all of it

What is read back follows from the checkpoint. torch's own functions read into the state of a new
optimizer, which they make by a step with zero gradients: they miss what a step does not make, as
the state of an unused layer, and leave out what it does not make either. They also number the
groups, so that those of one stage of a pipeline replace those of another. ``training_state`` calls
this; the older FSDP is a matter of ``flat_parameters``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint import _traverse
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from railwright import shard_metadata

Optimizers = Sequence[torch.optim.Optimizer]
Path = tuple[str | int, ...]

KEY = "optimizer"
_STATE, _GROUPS, _PARAMS = "state", "groups", "params"
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch leaves out of the names of a wrapped model, as the ``module`` of
DistributedDataParallel."""

_NUMBER = re.compile(r"int:(-?\d+)")
"""A key of a dict that is a number: torch writes keys as text."""


def name_of(model: torch.nn.Module, wrapped: str) -> str:
    """The name that a parameter or buffer of a wrapped model has in checkpoints."""
    kept, holder = list[str](), model
    for part in wrapped.split("."):
        if isinstance(holder, DistributedDataParallel):
            assert part == "module", f"a part of DistributedDataParallel is {part!r}"
        elif part not in _WRAPPED:
            kept.append(part)
        holder = getattr(holder, part)
    return ".".join(kept)


def collect(model: torch.nn.Module, optimizers: Optimizers) -> dict[str, Any]:
    """What to save of the optimizers. Raises ValueError where that is not only of parameters of the
    model."""
    names, state, groups = _names(model), dict[str, Any](), list[dict[str, Any]]()
    for optimizer in optimizers:
        raw, own = optimizer.state_dict(), _in_order(optimizer, names)
        if raw.keys() - {_STATE, "param_groups"} or not all(
            isinstance(each, int) for each in raw[_STATE]
        ):
            raise ValueError(
                f"optimizer: the state_dict of {type(optimizer).__name__} has more than states of "
                "parameters and groups: save that as an object of its own"
            )
        state |= {own[number]: _with_text_keys(its) for number, its in raw[_STATE].items()}
        groups += [
            {**group, _PARAMS: [own[number] for number in group[_PARAMS]]}
            for group in raw["param_groups"]
        ]
    return {_STATE: state, _GROUPS: named_groups(groups)}


def named_groups(groups: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The groups by the names of their first parameters; a group without parameters is dropped."""
    return {group[_PARAMS][0]: group for group in groups if group[_PARAMS]}


def placeholders(
    model: torch.nn.Module, optimizers: Optimizers, saved: Metadata
) -> dict[str, torch.Tensor | None]:
    """What to read of the checkpoint for these optimizers: its keys, with tensors to read into.
    Raises ``MetadataError``."""
    names = _names(model)
    its = {
        names.get(id(parameter), ""): parameter
        for optimizer in optimizers
        for parameter in parameters_of(optimizer)
    }
    found: dict[str, torch.Tensor | None] = {}
    for key, (_, section, name, *_) in paths(saved).items() if optimizers else ():
        if section == _GROUPS or name in its:
            entry = saved.state_dict_metadata[key]
            found[key] = _placeholder(entry, its.get(str(name)))
    return found


def put_back(
    model: torch.nn.Module, optimizers: Optimizers, saved: Metadata, values: Mapping[str, Any]
) -> None:
    """Load what was read into the optimizers. Raises RuntimeError where they are others than those
    that were saved."""
    root, names = dict[str, Any](), _names(model)
    for key, path in paths(saved).items():
        if key in values:
            # Numbers in a path are places in lists.
            _traverse.set_element(root, path[1:], values[key])
    group_of = {name: each for each in root.get(_GROUPS, {}).values() for name in each[_PARAMS]}
    for optimizer in optimizers:
        own = _in_order(optimizer, names)
        states = root.get(_STATE, {})
        state = {
            at: _with_number_keys(states[name]) for at, name in enumerate(own) if name in states
        }
        groups, first = [], 0
        for group in optimizer.param_groups:
            end = first + len(group[_PARAMS])
            options = _options(group, own[first:end], group_of)
            groups.append({**options, _PARAMS: list(range(first, end))})
            first = end
        optimizer.load_state_dict({_STATE: state, "param_groups": groups})


def _options(
    group: Mapping[str, Any], names: Sequence[str], group_of: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The saved options of the group of these parameters."""
    if not names:
        return group
    found = [group_of.get(name) for name in names]
    for name, each in zip(names, found, strict=True):
        if each is None:
            raise RuntimeError(f"Missing key: the checkpoint has no optimizer of {name}")
        if each is not found[0]:
            raise RuntimeError(f"{name} and {names[0]} were in different groups of the optimizer")
    options = found[0]
    assert options is not None, "each was found"
    if missing := sorted(group.keys() - options.keys()):
        raise RuntimeError(f"Missing key: the saved optimizer of {names[0]} has no {missing[0]}")
    return options


def _names(model: torch.nn.Module) -> dict[int, str]:
    return {id(parameter): name_of(model, name) for name, parameter in model.named_parameters()}


def _in_order(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> list[str]:
    """The names of its parameters, as its own state_dict numbers them."""
    found = [names.get(id(parameter)) for parameter in parameters_of(optimizer)]
    for number, name in enumerate(found):
        if name is None:
            raise ValueError(f"optimizer: its parameter {number} is none of the model's")
    return [name for name in found if name is not None]


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of all of its groups."""
    for group in optimizer.param_groups:
        yield from group[_PARAMS]


def _placeholder(entry: object, parameter: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor to read into, sharded as the parameter if it has the same shape; None for what is no
    tensor."""
    if not isinstance(entry, TensorStorageMetadata):
        return None
    dtype = entry.properties.dtype
    if parameter is None or parameter.shape != entry.size:
        return torch.empty(entry.size, dtype=dtype)
    whole = parameter if isinstance(parameter, DTensor) else parameter.data
    return torch.empty_like(whole, dtype=dtype, requires_grad=False)


def paths(saved: Metadata) -> dict[str, Path]:
    """The path of each key below ``optimizer``, of three parts or more. Raises
    ``MetadataError``."""
    data = saved.planner_data if isinstance(saved.planner_data, dict) else {}
    found = {}
    for key in saved.state_dict_metadata:
        path = data.get(key)
        if not key.startswith(f"{KEY}."):
            continue
        if (
            not isinstance(path, tuple)
            or len(path) < 3
            or not all(
                isinstance(part, str) or (type(part) is int and 0 <= part < len(data))
                for part in path
            )
        ):
            raise shard_metadata.MetadataError(f"{key!r} has no path")
        found[key] = path
    return found


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            f"int:{key}" if isinstance(key, int) else key: _with_text_keys(each)
            for key, each in value.items()
        }
    return [_with_text_keys(each) for each in value] if isinstance(value, list) else value


def _with_number_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_number_key(key): _with_number_keys(each) for key, each in value.items()}
    return [_with_number_keys(each) for each in value] if isinstance(value, list) else value


def _number_key(key: str) -> str | int:
    match = _NUMBER.fullmatch(key)
    return key if match is None else int(match[1])
