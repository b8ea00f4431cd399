"""What is taken away is missed: each mutant breaks an invariant within a few seeds."""

from __future__ import annotations

import pytest

from railwright_scheduler.attempt import gang
from simulation.hunts import HUNTS
from simulation.kept import kept_seeds
from simulation.mutants import MUTANTS, Mutant, hunt
from simulation.planted import ShellMutant
from simulation.shell_mutants import FOLDERS, ROOT, SHELL_MUTANTS, is_assertion

SEEDS = (*range(10), *kept_seeds())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_an_invariant(mutant: Mutant) -> None:
    assert hunt(mutant, SEEDS) is not None


PLANTED = (*SHELL_MUTANTS, *(hunt.mutant for hunt in HUNTS))


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_planted_mutant_finds_its_line_and_its_test(mutant: ShellMutant) -> None:
    """A rename in the product or in a test must not leave a mutant that cannot be planted."""
    file = ROOT / FOLDERS[mutant.package] / mutant.package / mutant.file
    assert file.read_text().count(mutant.old) == 1
    path, _, test = mutant.test.partition("::")
    name = test.partition("[")[0].rpartition("::")[2]
    assert f"def {name}(" in (ROOT / path).read_text()


def test_mutant_that_raises_is_not_caught() -> None:
    """It broke no invariant: the error of its replacement is shown."""
    with pytest.raises(TypeError):
        hunt(Mutant("raises", gang, "step", lambda original: lambda: None), SEEDS)


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


def test_mutants_have_names_of_their_own_and_are_not_few() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
