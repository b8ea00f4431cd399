"""No number of the code report changes unnoticed, and each of them is counted right."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from architecture import code_report, tree
from architecture.code_report import Retired

RECORDED = tomllib.loads(
    (tree.ROOT / "tests/architecture/code_report.toml").read_text(encoding="utf-8")
)
ALWAYS_ZERO = ("functions_over_15", "duplicate_class_names", "retired_words", "import_cycles")
LONGEST_TEST_NAME_MAX = 60


def test_numbers_are_recorded() -> None:
    figures = code_report.figures()
    assert figures == RECORDED, "update code_report.toml; your commit says why a number rises"
    assert not {name: figures[name] for name in ALWAYS_ZERO if figures[name]}
    assert figures["longest_test_name"] <= LONGEST_TEST_NAME_MAX


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# only a comment\n\n", 0),
        ('"""A docstring\nof two lines."""\n', 0),
        ("LIMIT = 1\n'''What it limits.'''\n", 1),
        ("x = (\n    1,\n\n    # why\n    2,\n)\n", 4),
        ("text = '''a\nb'''\n", 2),
        ('def f() -> None:\n    """Do it."""\n    return None  # at last\n', 2),
    ],
)
def test_code_lines_are_counted(source: str, lines: int) -> None:
    assert code_report.code_lines(source) == lines


def test_complex_function_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branches = "".join(f"    if x == {number}:\n        return {number}\n" for number in range(15))
    planted = _plant(
        tmp_path, monkeypatch, f"class C:\n  def f(self, x):\n{branches.replace('    ', '      ')}"
    )
    assert [finding.line for finding in code_report.complex_functions([planted])] == [2]
    simple = _plant(tmp_path, monkeypatch, "def f(x):\n    return x\n")
    assert not code_report.complex_functions([simple])


def test_class_name_used_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = "class Job: ...\nclass Node: ...\nclass Job: ...\nclass _Job: ...\n"
    planted = _plant(tmp_path, monkeypatch, twice)
    assert list(code_report.duplicate_classes([planted])) == ["Job"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("told = 1", ["told"]),
        ("x.told()", ["told"]),
        ("def told(): ...", ["told"]),
        ("def _told(): ...", ["_told"]),
        ("class Told: ...", []),
        ("f(told=1)", ["told"]),
        ("def f(told): ...", ["told"]),
        ("log('it was retold')", ["'was retold'"]),
        ("untold = retold = 1", []),
        ("histogram.observe(1)", []),
        ("def observe(): ...", ["observe"]),
        ("'''What is told.'''", []),
    ],
)
def test_retired_word_is_found(
    source: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired = Retired(
        frozenset(), frozenset({"told", "observe"}), ("was retold",), frozenset({"observe"})
    )
    planted = _plant(tmp_path, monkeypatch, source)
    assert [finding.text for finding in code_report.retired_uses([planted], retired)] == found


def test_retired_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = _plant(tmp_path, monkeypatch, "")
    retired = Retired(frozenset({planted.stem}), frozenset(), ())
    assert list(code_report.retired_uses([planted], retired))


def _plant(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Path:
    """A file of the repository with this source."""
    monkeypatch.setattr(tree, "ROOT", folder)
    path = folder / f"planted_{len(source)}.py"
    path.write_text(source, encoding="utf-8")
    ast.parse(source)
    return path
