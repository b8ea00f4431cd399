"""What others may import, as lists one can read; a name added or lost is seen here first."""

from __future__ import annotations

import ast
import importlib
from types import ModuleType

import pytest

from architecture import tree

WORKER_NAMES_MAX = 10

SURFACES: dict[str, list[str]] = {
    "railwright": ["AttemptRevoked", "Checkpointer", "Phase", "phase", "report"],
}


@pytest.mark.parametrize("name", sorted(SURFACES))
def test_the_public_names_are_these(name: str) -> None:
    assert list(importlib.import_module(name).__all__) == SURFACES[name]


@pytest.mark.parametrize("name", sorted(SURFACES))
def test_every_public_name_exists_and_no_other_is_public(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} does not say what it is for"
    assert _public(module) == sorted(module.__all__)


def test_a_training_script_learns_few_names() -> None:
    assert 1 <= len(SURFACES["railwright"]) <= WORKER_NAMES_MAX


def test_what_a_module_lists_as_public_it_has_once_and_in_order() -> None:
    for path in tree.python_files(*tree.PRODUCT, "testbed"):
        for statement in tree.parse(path).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                names = list(ast.literal_eval(statement.value))
                assert len(set(names)) == len(names), f"{tree.name_of(path)}: a name is twice there"
                assert names == sorted(names, key=_isort_key), f"{tree.name_of(path)}: not sorted"


def _public(module: ModuleType) -> list[str]:
    names = vars(module)
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    )


def _isort_key(name: str) -> tuple[int, str]:
    """Ruff's order: constants, then types, then functions."""
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name
