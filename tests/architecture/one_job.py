"""``docs/one-job.md`` as the tests read it: steps, each with a table of modules and functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from architecture import tree

PAGE = tree.ROOT / "docs/one-job.md"

NOT_COUNTED = (
    "operator/railwright_api/",
    "operator/railwright_kube/",
    "operator/railwright_operator/informers.py",
    "scheduler/railwright_scheduler/model/",
)
"""The kinds; the API client and the informers, which handle objects of any kind; the model."""

_STEP = re.compile(r"^## (\d+)\. (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_FIRST = re.compile(r"^\d+\. `([\w./-]+\.py)` ", re.MULTILINE)
_ROW = re.compile(r"^\| `([\w./-]+\.py)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_FILE = re.compile(r"`([\w./-]+/[\w.-]+\.py)`")
_FUNCTION = re.compile(r"`([\w.]+)\(\)`")


@dataclass(frozen=True, slots=True)
class Row:
    """A module, its functions that the page names, and what they do with the job."""

    module: str
    functions: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A numbered section of the page."""

    number: int
    title: str
    rows: tuple[Row, ...]


def steps() -> list[Step]:
    """The steps in the order of the page."""
    return [
        Step(int(number), title, tuple(_rows(body)))
        for number, title, body in _STEP.findall(PAGE.read_text(encoding="utf-8"))
    ]


def _rows(body: str) -> Iterator[Row]:
    for module, functions, text in _ROW.findall(body):
        yield Row(module, tuple(_FUNCTION.findall(functions)), text)


def modules() -> list[str]:
    """The modules of all rows; one that is in two steps is twice in the list."""
    return [row.module for step in steps() for row in step.rows]


def first() -> list[str]:
    """The modules to read first, in their order."""
    return _FIRST.findall(PAGE.read_text(encoding="utf-8"))


def files() -> set[str]:
    """Every file that the page names."""
    return set(_FILE.findall(PAGE.read_text(encoding="utf-8")))


def counted(names: set[str]) -> set[str]:
    """Those that the report counts."""
    return {name for name in names if not name.startswith(NOT_COUNTED)}
