"""docs/security.md names a test for every control, and each of them exists."""

from __future__ import annotations

import re

from house import tree

PAGE = tree.ROOT / "docs/security.md"
TEST = re.compile(r"`(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    defined = {
        name
        for path in sorted((tree.ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    named = set(TEST.findall(PAGE.read_text(encoding="utf-8")))
    assert named
    assert not sorted(named - defined)


def test_every_row_of_its_tables_names_a_test() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("|---")]
    heads = ("| threat | control | test |", "| input | answer | test |")
    assert not [row for row in rows if row not in heads and not TEST.search(row)]
