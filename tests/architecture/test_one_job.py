"""The page that follows one job names modules and functions that exist.

That it names the right ones is shown by ``tests/e2e/test_one_job.py``, which traces a job.
"""

from __future__ import annotations

import ast

from architecture import one_job, tree


def test_steps_are_numbered_in_order_and_have_rows() -> None:
    steps = one_job.steps()
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert len(steps) >= 5
    assert not [step.title for step in steps if not step.rows]


def test_every_file_on_the_page_is_one_row() -> None:
    """So the number of rows is the number of modules that a reader meets."""
    modules = one_job.modules()
    assert len(set(modules)) == len(modules), "a module is in two rows"
    named = {name for name in one_job.files() if not name.startswith("tests/")}
    assert named == set(modules), "a file is named outside the tables"
    assert not [name for name in modules if not (tree.ROOT / name).exists()]


def test_few_modules_are_to_be_read_first() -> None:
    first = one_job.first()
    assert 10 <= len(set(first)) == len(first) <= 16
    assert set(first) < set(one_job.modules())


def test_each_function_of_a_row_is_in_its_module() -> None:
    rows = [row for step in one_job.steps() for row in step.rows]
    assert not [row.module for row in rows if not row.functions]
    missing = [
        f"{row.module} has no {function}()"
        for row in rows
        for function in row.functions
        if function not in _defined(row.module)
    ]
    assert not missing, "\n".join(missing)


def test_the_first_step_is_what_the_user_writes() -> None:
    assert one_job.modules()[0].startswith("operator/railwright_api/")


def _defined(name: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    module = tree.parse(tree.ROOT / name)
    return {node.name for node in ast.walk(module) if isinstance(node, kinds)}
