"""Names are the field's; what no file may hold: drawers, markers, machine paths, unsafe loaders."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from architecture import bans, tree
from architecture.tree import Finding

Check = Callable[[ast.Module], Iterable[tuple[int, str]]]

DRAWERS = frozenset(
    {"base", "common", "helper", "helpers", "manager", "managers", "misc", "stuff"}
    | {"util", "utilities", "utility", "utils"}
)

# Written in two parts, so that this file does not break its own rule.
MARKERS = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b"
)
BANNER = re.compile(r"^\s*(#|//)\s*[-=#*~_+]{3,}")
MACHINE_PATHS = re.compile(r"(?<![\w.$}/-])/(work\b|(root|home|Users|mnt)/\w)")
HOSTS = re.compile(
    r"\b[\w-]+(\.[\w-]+)*\.(internal|corp|intranet|lan)(?=[:/\"'\s]|$)"
    r"|\bindex-url\b|\bGOPROXY=http|\.\./shared\b"
)


def test_no_file_is_a_drawer() -> None:
    findings = [
        Finding(tree.name_of(path), 1, f"{part!r} names no concept")
        for path in tree.text_files()
        for part in re.split(r"[_.\-]", path.name.lower())
        if part in DRAWERS and path.suffix == ".py"
    ]
    assert not findings, tree.report(findings, "a file is named after the concept in it")


def test_no_class_is_a_drawer() -> None:
    findings = [
        Finding(tree.name_of(path), node.lineno, f"class {node.name}")
        for path in tree.python_files()
        for node in ast.walk(tree.parse(path))
        if isinstance(node, ast.ClassDef)
        and any(word.lower() in DRAWERS for word in re.findall(r"[A-Z][a-z]*", node.name))
    ]
    assert not findings, tree.report(findings, "a class is named after what it is")


def test_operator_folder_does_not_shadow_standard_library() -> None:
    assert not (tree.ROOT / "operator/__init__.py").exists()


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        (MARKERS, "what is open belongs in an issue"),
        (BANNER, "a file that needs banners is two files"),
        (MACHINE_PATHS, "nobody else has this path"),
        (HOSTS, "nobody else reaches this host or place"),
    ],
)
def test_no_line_holds(pattern: re.Pattern[str], rule: str) -> None:
    findings = [
        Finding(tree.name_of(path), number, line.strip()[:100])
        for path in tree.text_files()
        if path != Path(__file__)
        for number, line in enumerate(tree.text_of(path).splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not findings, tree.report(findings, rule)


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (MARKERS, "# TODO: later", True),
        (MARKERS, "todo_count = 1", False),
        (BANNER, "    # ------ helpers ------", True),
        (BANNER, "# ====", True),
        (BANNER, "# - an item of a list", False),
        (MACHINE_PATHS, "path = '/home/anna/x'", True),
        (MACHINE_PATHS, "see /home/anna/notes", True),
        (MACHINE_PATHS, "POST /v1/register", False),
        (MACHINE_PATHS, "HOME=/root", False),
        (MACHINE_PATHS, "the operator/worker/root/leaf of a tree", False),
        (HOSTS, "registry.corp/pause", True),
        (HOSTS, "mirror.example.internal:5000", True),
        (HOSTS, "an internal error", False),
        (HOSTS, "io.containerd.internal.v1.opt", False),
    ],
)
def test_patterns_match_their_examples(pattern: re.Pattern[str], line: str, expected: bool) -> None:
    assert bool(pattern.search(line)) is expected


def test_no_code_loads_or_runs_untrusted_data() -> None:
    findings = _findings(bans.unsafe_calls, tree.python_files())
    assert not findings, tree.report(
        findings, "JSON and safe loaders only; programs by argument list"
    )


def test_no_error_is_caught_without_a_name() -> None:
    findings = _findings(bans.broad_handlers, tree.python_files())
    assert not findings, tree.report(findings, "catch what is expected, or raise again")


def test_no_test_sleeps_and_hopes() -> None:
    real = [path for path in tree.python_files("tests") if not _is_virtual(path)]
    findings = _findings(bans.hopeful_sleeps, real)
    assert not findings, tree.report(findings, "wait for a condition in a loop with a deadline")


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "import yaml\nyaml.load(x, Loader=y)",
        "eval('1')",
        "exec(x)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import os\nos.system('ls')",
        "import torch\ntorch.load(p)",
    ],
)
def test_a_planted_unsafe_call_is_found(source: str) -> None:
    assert list(bans.unsafe_calls(ast.parse(source)))


def test_restricted_unpickler_is_allowed() -> None:
    restricted = (
        "import pickle\nclass Reader(pickle.Unpickler):\n"
        "    def find_class(self, module, name):\n        raise KeyError(name)"
    )
    assert not list(bans.unsafe_calls(ast.parse(restricted)))
    assert list(bans.unsafe_calls(ast.parse(restricted + "\npickle.loads(x)")))
    assert list(bans.unsafe_calls(ast.parse(restricted.replace("find_class", "load"))))


def test_planted_handlers_and_sleeps_are_found() -> None:
    bare = "try:\n    f()\nexcept:\n    pass"
    assert list(bans.broad_handlers(ast.parse(bare)))
    assert list(
        bans.broad_handlers(ast.parse(bare.replace("except:", "except (Exception, OSError):")))
    )
    assert not list(bans.broad_handlers(ast.parse(bare.replace("except:", "except OSError:"))))
    assert list(bans.hopeful_sleeps(ast.parse("def f():\n    time.sleep(1)\n    assert g()")))
    waiting = "def f(deadline_s):\n    while now() < deadline_s:\n        time.sleep(1)"
    assert not list(bans.hopeful_sleeps(ast.parse(waiting)))


def _is_virtual(path: Path) -> bool:
    """Whether the code runs in virtual time, where sleeping is how time passes."""
    return tree.name_of(path).startswith("tests/simulator/")


def _findings(check: Check, files: Iterable[Path]) -> list[Finding]:
    return [
        Finding(tree.name_of(path), line, text)
        for path in files
        for line, text in check(tree.parse(path))
    ]
