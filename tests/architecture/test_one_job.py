"""One job can be followed through fewer than ten files, and the page that does so stays true."""

from __future__ import annotations

import ast
import re

from architecture import tree

PAGE = tree.ROOT / "docs/one-job.md"
STOPS_MAX = 9

_STOP = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+/[\w.-]+\.py)`")
_FUNCTION = re.compile(r"`([\w.]+)\(\)`")


def test_the_stops_are_numbered_in_order_and_fewer_than_ten() -> None:
    numbers = [int(number) for number, _ in _stops()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 5 <= len(numbers) <= STOPS_MAX


def test_each_stop_is_one_file_that_exists_and_is_no_other_stop() -> None:
    files = [_files(text)[:1] for _, text in _stops()]
    assert all(files), "a stop opens with its file in code marks"
    names = [name for found in files for name in found]
    assert len(set(names)) == len(names), f"a file is twice among {names}"
    missing = [name for name in names if not (tree.ROOT / name).exists()]
    assert not missing, f"these stops do not exist: {missing}"


def test_the_story_needs_no_file_that_is_no_stop() -> None:
    stops = [name for _, text in _stops() for name in _files(text)[:1]]
    named = _FILE.findall(PAGE.read_text(encoding="utf-8"))
    extra = sorted(set(named) - set(stops))
    assert not extra, f"the page also sends its reader to {extra}"


def test_each_function_a_stop_names_is_in_its_file() -> None:
    missing = [
        f"{_files(text)[0]} has no {function}()"
        for _, text in _stops()
        for function in _FUNCTION.findall(text)
        if function.rpartition(".")[2] not in _defined(_files(text)[0])
    ]
    assert not missing, "\n".join(missing)


def test_the_first_stop_is_what_the_user_writes() -> None:
    _, text = _stops()[0]
    assert _files(text)[0].startswith("operator/railwright_api/")


def _stops() -> list[tuple[str, str]]:
    assert PAGE.exists(), "docs/one-job.md tells the story of one job"
    return [(match[1], match[2]) for match in _STOP.finditer(PAGE.read_text(encoding="utf-8"))]


def _files(text: str) -> list[str]:
    return _FILE.findall(text)


def _defined(name: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    module = tree.parse(tree.ROOT / name)
    return {node.name for node in ast.walk(module) if isinstance(node, kinds)}
