"""Every mutant can be planted, and is caught by what it names."""

from __future__ import annotations

import pytest

from simulation.hunts import HUNTS
from simulation.planted import Mutant
from simulation.tested_mutants import FOLDERS, ROOT, TESTED_MUTANTS, is_assertion

PLANTED = (*TESTED_MUTANTS, *(hunt.mutant for hunt in HUNTS))


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_planted_mutant_finds_its_line_and_its_test(mutant: Mutant) -> None:
    """A rename in the product or in a test must not leave a mutant that cannot be planted."""
    file = ROOT / FOLDERS[mutant.package] / mutant.package / mutant.file
    assert file.read_text().count(mutant.old) == 1
    path, _, test = mutant.test.partition("::")
    name = test.partition("[")[0].rpartition("::")[2]
    assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize(
    ("printed", "caught"),
    [
        ("tests/unit/test_a.py:7: AssertionError", True),
        ("tests/unit/test_a.py:7: Failed", True),
        ("tests/unit/test_a.py:7: OutcomeUnknown", True),
        ("tests/unit/test_a.py:7: KeyError", False),
        ("tests/conftest.py:7: in <module>\nE   ImportError: no such name", False),
        ("operator/railwright_operator/cycle.py:7: AssertionError", False),
    ],
)
def test_only_a_failed_assertion_catches(printed: str, caught: bool) -> None:
    ends = f"E   why\n\n{printed}\n==== short test summary info ====\n"
    assert is_assertion(ends, "OutcomeUnknown") is caught


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in PLANTED}) == len(PLANTED) >= 60
