"""A workload's file, read: what is wrong with it is said with the line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from railwright_api.workload import Workload
from railwright_topology.sources import documents
from railwright_topology.sources.documents import Value
from railwright_topology.wiring import WiringError


def read(path: Path) -> Workload:
    """Read a file. Raises WiringError with the line, or OSError."""
    source = str(path)
    document = documents.read(source, path.read_text(encoding="utf-8"))
    refuse_unknown(document)
    try:
        return Workload.model_validate(plain(document))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        rule = f"{place}: {first['msg']}" if place else first["msg"].removeprefix("Value error, ")
        raise WiringError(source, _line(document, first["loc"]), rule) from error


def refuse_unknown(value: Value, model: type[BaseModel] = Workload, path: str = "") -> None:
    """Raise WiringError at the first key that a workload does not have, with the nearest that it
    has. The API server prunes such keys; in a file a misspelt one would change the answer."""
    if not isinstance(value.content, Mapping):
        return
    known = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, entry in value.content.items():
        field = known.get(key) or model.model_fields.get(key)
        if field is None:
            (nearest,) = difflib.get_close_matches(key, known, n=1, cutoff=0)
            raise entry.error(f"{path}{key[:80]}: unknown field, the nearest is {path}{nearest}")
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                refuse_unknown(entry, inner, f"{path}{key}.")


def plain(value: Value) -> object:
    """The same without lines: text, lists and mappings."""
    content = value.content
    if isinstance(content, str):
        return content
    if isinstance(content, tuple):
        return [plain(each) for each in content]
    return {key: plain(each) for key, each in content.items()}


def _line(value: Value, place: tuple[int | str, ...]) -> int:
    """Where the value at this place stands, or what it would stand in."""
    for step in place:
        if not isinstance(value.content, Mapping) or step not in value.content:
            break
        value = value.content[str(step)]
    return value.line
