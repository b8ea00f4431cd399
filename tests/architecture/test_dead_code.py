"""Code that nothing uses is deleted. What only tests use is dead too: the product is read alone."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vulture

from architecture import tree
from architecture.tree import Finding

CONFIDENCE_PERCENT_MIN = 60

KINDS = "operator/railwright_api/"
EXITS = ("__exit__", "__aexit__")

# The testbed and the tests' own language live from what calls them: those are read together.
WITH_THEIR_USERS = ("operator", "scheduler", "topology", "worker", "testbed", "tests", "examples")

EXCUSES: list[dict[str, Any]] = tomllib.loads(
    (tree.ROOT / "tests/architecture/alive.toml").read_text(encoding="utf-8")
).get("alive", [])
EXCUSED = {(excuse["path"], name) for excuse in EXCUSES for name in excuse["names"]}


def test_the_product_holds_no_dead_code() -> None:
    findings = [
        Finding(path, line, text)
        for path, name, line, text in _unused(tree.PRODUCT)
        if (path, name) not in EXCUSED
    ]
    assert not findings, tree.report(
        findings, "delete it, or use it, or say in alive.toml who does"
    )


def test_neither_do_the_testbed_and_the_tests() -> None:
    product = tuple(f"{part}/" for part in tree.PRODUCT)
    findings = [
        Finding(path, line, text)
        for path, name, line, text in _unused(WITH_THEIR_USERS)
        if not path.startswith(product)
        and not name.startswith(("test_", "pytest"))
        and (path, name) not in EXCUSED
    ]
    assert not findings, tree.report(findings, "delete it, or use it")


def test_no_excuse_outlives_its_need() -> None:
    unused = {(path, name) for path, name, _, _ in _unused(tree.PRODUCT)}
    unused |= {(path, name) for path, name, _, _ in _unused(WITH_THEIR_USERS)}
    assert not EXCUSED - unused, f"remove from alive.toml: {sorted(EXCUSED - unused)}"
    assert all(excuse["reason"].strip() for excuse in EXCUSES)


@functools.cache
def _unused(parts: tuple[str, ...]) -> list[tuple[str, str, int, str]]:
    """What no line of these parts names: path, name, line, and vulture's words for it."""
    files = tree.python_files(*parts)
    assert files, f"no Python file below {parts}"
    finder = vulture.Vulture(ignore_decorators=["@kopf.*", "@pytest.fixture*", "@*_validator*"])
    finder.scavenge([str(path) for path in files])
    return [
        (tree.name_of(Path(item.filename)), item.name, item.first_lineno, item.message)
        for item in finder.get_unused_code(min_confidence=CONFIDENCE_PERCENT_MIN)
        if not _is_named_from_outside(Path(item.filename), item.first_lineno)
    ]


def _is_named_from_outside(path: Path, line: int) -> bool:
    return any(start <= line <= end for start, end in _named_from_outside(path))


@functools.cache
def _named_from_outside(path: Path) -> tuple[tuple[int, int], ...]:
    """Members of closed sets, fields of the kinds, and what Python itself hands to ``__exit__``."""
    is_kind = tree.name_of(path).startswith(KINDS)
    return tuple(
        span for node in ast.walk(tree.parse(path)) for span in _spans(node, is_kind=is_kind)
    )


def _spans(node: ast.AST, *, is_kind: bool) -> Iterator[tuple[int, int]]:
    if isinstance(node, ast.ClassDef):
        closed_set = any(ast.unparse(base).endswith("StrEnum") for base in node.bases)
        for part in node.body:
            assigns = isinstance(part, ast.Assign) and (closed_set or _configures(part))
            if assigns or (isinstance(part, ast.AnnAssign) and is_kind):
                yield part.lineno, part.lineno
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in EXITS:
        yield node.lineno + 1, node.body[0].lineno - 1


def _configures(part: ast.Assign) -> bool:
    return ast.unparse(part.targets[0]) == "model_config"
