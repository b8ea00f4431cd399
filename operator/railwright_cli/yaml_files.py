"""Read a YAML file as a model of the API; an error names the file and the line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError

from railwright_api import workload
from railwright_topology.sources import documents
from railwright_topology.sources.documents import Value
from railwright_topology.wiring import WiringError

Read = TypeVar("Read", bound=BaseModel)


def read(path: Path, model: type[Read]) -> Read:
    """Read a file. A value that is left empty is as good as absent.

    Raises WiringError with the line, or OSError.
    """
    source = str(path)
    document = documents.read(source, path.read_text(encoding="utf-8"))
    _refuse_unknown(document, model)
    try:
        return model.model_validate(_plain(document))
    except ValidationError as error:
        first = error.errors()[0]
        place, rule = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        message = f"{place}: {rule}" if place else rule
        raise WiringError(source, _line(document, first["loc"]), message) from error


def _refuse_unknown(value: Value, model: type[BaseModel], path: str = "") -> None:
    """Raise WiringError at the first key that a workload does not have, with the nearest that it
    has. The API server prunes such keys; in a file a misspelt one would change the prediction."""
    if isinstance(value.content, tuple):
        for item in value.content:
            _refuse_unknown(item, model, path)
    if not isinstance(value.content, Mapping):
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, entry in value.content.items():
        field = fields.get(key) or model.model_fields.get(key)
        if field is not None:
            for inner in (field.annotation, *get_args(field.annotation)):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    _refuse_unknown(entry, inner, f"{path}{key}.")
        elif model.__module__ == workload.__name__:
            (nearest,) = difflib.get_close_matches(key, fields, n=1, cutoff=0)
            raise entry.error(f"{path}{key[:80]}: unknown field, the nearest is {path}{nearest}")


def _plain(value: Value) -> object:
    """The value without lines: text, lists and mappings."""
    if isinstance(value.content, str):
        return value.content
    if isinstance(value.content, tuple):
        return [_plain(each) for each in value.content]
    return {key: _plain(each) for key, each in value.content.items() if each.content != ""}


def _line(value: Value, place: tuple[int | str, ...]) -> int:
    """The line of the value at this place, or of what it would be in."""
    for step in place:
        inner = value.content
        if isinstance(inner, Mapping) and step in inner:
            value = inner[str(step)]
        elif isinstance(inner, tuple) and isinstance(step, int):
            value = inner[step]
        else:
            break
    return value.line
