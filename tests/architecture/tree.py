"""The repository as the architecture tests see it: files as text, Python as syntax trees."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("operator", "scheduler", "topology", "worker")
PACKAGES = (
    "operator/railwright_api",
    "operator/railwright_cli",
    "operator/railwright_controllers",
    "operator/railwright_operator",
    "operator/railwright_conversion",
    "operator/railwright_kube",
    "operator/railwright_mapper",
    "operator/railwright_process",
    "operator/railwright_watch",
    "scheduler/railwright_scheduler",
    "topology/railwright_agent",
    "topology/railwright_topology",
    "worker/railwright",
)

_TEXT_SUFFIXES = frozenset(
    {"", ".cfg", ".html", ".ini", ".json", ".md", ".mod", ".py", ".sh", ".toml", ".txt"}
    | {".yaml", ".yml"}
)
_FOLDERS_SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules"})
_DOT_FOLDERS_READ = frozenset({".ci", ".github"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One breach of a rule, as an editor can jump to it."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def python_files(*folders: str) -> tuple[Path, ...]:
    """Every Python file below these folders of the repository (none named: below all of it)."""
    starts = tuple(f"{folder}/" for folder in folders)
    return tuple(
        path
        for path in text_files()
        if path.suffix == ".py" and (not starts or name_of(path).startswith(starts))
    )


_WORKTREE_LINK = ".git"
"""A file in a worktree, a folder elsewhere."""


@functools.cache
def text_files() -> tuple[Path, ...]:
    """Every file of the repository that a person writes or reads; no build output, no locks."""
    return tuple(sorted(_walk(ROOT)))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if path.name in _DOT_FOLDERS_READ or not _is_skipped(path):
                yield from _walk(path)
        elif path.suffix in _TEXT_SUFFIXES and path.name != _WORKTREE_LINK:
            yield path


def _is_skipped(folder: Path) -> bool:
    name = folder.name
    return name.startswith(".") or name in _FOLDERS_SKIPPED or name.endswith(".egg-info")


def name_of(path: Path) -> str:
    """The path as the repository names it."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text_of(path: Path) -> str:
    """A file's text; a file that is no UTF-8 has none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@functools.cache
def parse(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(text_of(path), filename=name_of(path))


def report(findings: list[Finding] | tuple[Finding, ...], rule: str) -> str:
    """The message of an architecture test that failed: the rule, then each breach on its line."""
    return "\n".join([rule, *(f"  {finding}" for finding in sorted(findings))])
