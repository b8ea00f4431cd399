"""Constants of the product's modules, and the texts below them, for the reference pages."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from architecture import tree

TIME = re.compile(r"(?<!PER)(^|_)(S|SECONDS|MS|MINUTES|HOURS|DAYS|PERIOD|TIMEOUT)(_[A-Z]+)?$")
"""The name of a constant that has a time: its unit is the last word, or the one before a bound."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One name of a module, its value, and the string below it."""

    name: str
    value: Any
    text: str


def documented(module: str, prefix: str) -> list[Constant]:
    """The constants of a module whose names begin so, in their order."""
    imported = importlib.import_module(module)
    body = tree.parse(Path(str(imported.__file__))).body
    return [
        Constant(name, getattr(imported, name), _text_below(body, at))
        for at, statement in enumerate(body)
        for name in _names(statement)
        if name.startswith(prefix)
    ]


def times(*, without: str) -> set[str]:
    """The names of all constants of the product that have a time, as ``module.NAME``; those of
    modules that begin with ``without`` do not count."""
    return {
        f"{module}.{name}"
        for path in tree.python_files(*tree.PRODUCT)
        if not (module := _module(path)).startswith(without)
        for statement in tree.parse(path).body
        for name in _names(statement)
        if TIME.search(name)
    }


def value(place: str) -> Any:
    """The value at ``module.NAME``, or at ``module.Class.field``: that of an instance without
    arguments."""
    module, _, name = place.rpartition(".")
    if module.rpartition(".")[2][0].isupper():
        return getattr(value(module)(), name)
    return getattr(importlib.import_module(module), name)


def _module(path: Path) -> str:
    """Its name: packages are one folder below the root."""
    parts = path.relative_to(tree.ROOT).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")


def _names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.Assign(targets=targets):
            yield from (
                node.id for each in targets for node in ast.walk(each) if isinstance(node, ast.Name)
            )
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _text_below(body: list[ast.stmt], at: int) -> str:
    match body[at + 1 : at + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return " ".join(text.split())
    return ""
