"""No file, function or test function that nobody can hold in the head."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator

import pytest

from architecture import tree

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
TEST_FUNCTION_LINES_MAX = 40

EXCEPTIONS = tomllib.loads(
    (tree.ROOT / "tests/architecture/exceptions.toml").read_text(encoding="utf-8")
)


def test_files_are_short() -> None:
    sizes = {tree.name_of(path): tree.text_of(path).count("\n") for path in tree.python_files()}
    breaches = _breaches({name: (size, FILE_LINES_MAX) for name, size in sizes.items()}, "files")
    assert not breaches, "\n".join(breaches)


def test_functions_are_short() -> None:
    sizes: dict[str, tuple[int, int]] = {}
    for path in tree.python_files():
        name = tree.name_of(path)
        for function, lines in _functions(tree.parse(path)):
            is_test = name.startswith("tests/") and function.rpartition(".")[2].startswith("test_")
            limit = TEST_FUNCTION_LINES_MAX if is_test else FUNCTION_LINES_MAX
            sizes[f"{name}::{function}"] = (lines, limit)
    breaches = _breaches(sizes, "functions")
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize(
    ("lines", "recorded", "expected"),
    [
        (400, None, None),
        (401, None, "has 401 lines, at most 400"),
        (420, 420, None),
        (421, 420, "has 421 lines, its exception allows 420"),
        (419, 420, "has 419 lines, its exception says 420: lower it"),
        (400, 420, "has 400 lines, its exception says 420: remove it"),
        (None, 420, "is gone: remove its exception"),
    ],
)
def test_an_exception_may_only_shrink(
    lines: int | None, recorded: int | None, expected: str | None
) -> None:
    assert _breach(lines, recorded, limit=400) == expected


def _breaches(sizes: dict[str, tuple[int, int]], kind: str) -> list[str]:
    recorded: dict[str, int] = EXCEPTIONS[kind]
    breaches = []
    for name in sorted(sizes.keys() | recorded.keys()):
        lines, limit = sizes.get(name, (None, 0))
        breach = _breach(lines, recorded.get(name), limit=limit)
        if breach is not None:
            breaches.append(f"{name} {breach}")
    return breaches


def _breach(lines: int | None, recorded: int | None, *, limit: int) -> str | None:
    if lines is None:
        return "is gone: remove its exception"
    if recorded is None:
        return f"has {lines} lines, at most {limit}" if lines > limit else None
    if lines > recorded:
        return f"has {lines} lines, its exception allows {recorded}"
    if lines < recorded:
        advice = "lower it" if lines > limit else "remove it"
        return f"has {lines} lines, its exception says {recorded}: {advice}"
    return None


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Each function and method with its lines, from ``def`` to its last line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            assert child.end_lineno is not None
            yield f"{prefix}{child.name}", child.end_lineno - child.lineno + 1
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)
