"""The core's answer depends on its arguments alone; what cannot be seen in imports is seen here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path

import grimp
import pytest

from architecture import hash_order, impurities, tree
from architecture.tree import Finding

CORE = "railwright_scheduler"
PURE_NEIGHBOURS = ("railwright_topology",)

# Where amounts (devices, bytes, millicores) are counted. Times, and predicted costs in placement
# and mapping, are no amounts.
COUNTING = (
    "snapshot",
    "decisions",
    "reasons",
    "shortages",
    "text",
    "decide",
    "turn",
    "fit",
    "scheduling_queue",
    "quota",
    "attempt",
)

Check = Callable[[ast.Module], Iterable[tuple[int, str]]]


def test_the_core_calls_nothing_that_reaches_outside() -> None:
    _expect_none(impurities.banned_calls, "the core may only compute")


def test_the_core_keeps_no_state_between_calls() -> None:
    _expect_none(impurities.module_state, "name constants in capitals; keep state in arguments")
    _expect_none(impurities.mutated_constants, "what is named in capitals is never changed")


def test_nothing_the_core_returns_can_depend_on_hash_order() -> None:
    declarations = hash_order.declared([tree.parse(path) for path in _core_files()])
    _expect_none(
        lambda module: hash_order.iterations(module, declarations), "sort a set to iterate it"
    )


def test_amounts_are_exact_integers() -> None:
    package = tree.ROOT / "scheduler" / CORE
    counting = [
        path for path in _core_files() if path.is_relative_to(package) and _counts(path, package)
    ]
    assert len(counting) >= 5, f"of the files that count only these were found: {counting}"
    _expect_none(impurities.floats_for_amounts, "floats lose pieces", counting)


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (impurities.banned_calls, "def f(): return open('x')"),
        (impurities.banned_calls, "import numpy as np\nnp.random.default_rng(1)"),
        (impurities.banned_calls, "from numpy.random import default_rng"),
        (impurities.banned_calls, "def f(a, b): return a @ b"),
        (impurities.banned_calls, "import numpy as np\ndef f(a, b): return np.dot(a, b)"),
        (impurities.banned_calls, "def f(x): return hash(x)"),
        (impurities.banned_calls, "def f():\n    global x\n    x = 1"),
        (impurities.module_state, "seen = []"),
        (impurities.module_state, "seen: dict[str, int] = dict()"),
        (impurities.module_state, "class A:\n    seen = {}"),
        (impurities.mutated_constants, "TABLE = {}\ndef f(): TABLE['a'] = 1"),
        (impurities.mutated_constants, "_TABLE = []\ndef f(): _TABLE.append(1)"),
        (impurities.floats_for_amounts, "share = 0.5"),
        (impurities.floats_for_amounts, "def f(a, b): return a / b"),
        (impurities.floats_for_amounts, "def f(a): return float(a)"),
    ],
)
def test_a_planted_impurity_is_found(check: Check, source: str) -> None:
    assert list(check(ast.parse(source)))


@pytest.mark.parametrize(
    ("check", "source"),
    [
        (impurities.banned_calls, "import numpy as np\nnp.argsort([1])"),
        (impurities.module_state, "TABLE = {}"),
        (impurities.mutated_constants, "TABLE = {'a': 1}\ndef f(): return TABLE['a']"),
        (impurities.floats_for_amounts, "DEADLINE_S = 60.0\ndef f(a, b): return a // b"),
    ],
)
def test_pure_code_passes(check: Check, source: str) -> None:
    assert not list(check(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: pass",
        "[x for x in set(y)]",
        "def f(names: frozenset[str]): return list(names)",
        "def f(a, b): return tuple(a.keys() - b.keys())",
        "def f(a):\n    b = {x for x in a}\n    return ','.join(b)",
        "def f(a: set[int]): return a.pop()",
        "def f(a: set[int]): return max(a, key=abs)",
        "def f(a: set[int]): return [*a]",
        "class A:\n    names: frozenset[str]\ndef f(a: A): return [n for n in a.names]",
        "def g() -> set[int]: ...\ndef f(): return {x: 1 for x in g()}",
        "def f(a: set[int]):\n    def g(): return [x for x in a]\n    return g",
    ],
)
def test_a_set_whose_order_can_be_seen_is_found(source: str) -> None:
    module = ast.parse(source)
    assert list(hash_order.iterations(module, hash_order.declared([module])))


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted({1, 2}): pass",
        "def f(names: frozenset[str]): return sorted(names), len(names), 'a' in names",
        "def f(a: set[int]): return sum(x for x in a), {x + 1 for x in a}",
        "def f(a: set[int]): return any(x for x in a)",
        "def f(a: list[int]):\n    for x in a: pass\ndef g(a: set[int]): return max(a)",
        "def f(a: set[int]): return [x for x in sorted(a)]",
        "def f(a: dict[str, int]): return [*a, *a.items()]",
    ],
)
def test_a_set_whose_order_cannot_be_seen_passes(source: str) -> None:
    module = ast.parse(source)
    assert not list(hash_order.iterations(module, hash_order.declared([module])))


def _core_files() -> list[Path]:
    """The scheduler, and every file of its neighbours that it imports, however far away."""
    graph = grimp.build_graph(CORE, *PURE_NEIGHBOURS, cache_dir=None)
    reached = graph.find_upstream_modules(CORE, as_package=True) | graph.find_descendants(CORE)
    files = [
        path for path in tree.python_files("scheduler", "topology") if _module(path) in reached
    ]
    assert len(files) > 5, f"the core has only {files}"
    return files


def _module(path: Path) -> str:
    parts = path.relative_to(tree.ROOT).with_suffix("").parts[1:]
    return ".".join(part for part in parts if part != "__init__")


def _counts(path: Path, package: Path) -> bool:
    return path.relative_to(package).with_suffix("").parts[0] in COUNTING


def _expect_none(check: Check, rule: str, files: list[Path] | None = None) -> None:
    findings = [
        Finding(tree.name_of(path), line, text)
        for path in (_core_files() if files is None else files)
        for line, text in check(tree.parse(path))
    ]
    assert not findings, tree.report(findings, rule)
