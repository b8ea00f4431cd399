"""What is taken away is missed: each mutant breaks an invariant within a few seeds."""

from __future__ import annotations

import pytest

from simulation.kept import kept_seeds
from simulation.mutants import MUTANTS, Mutant, hunt

SEEDS = (*range(10), *kept_seeds())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_breaks_an_invariant(mutant: Mutant) -> None:
    assert hunt(mutant, SEEDS) is not None


def test_mutants_have_names_of_their_own_and_are_not_few() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
