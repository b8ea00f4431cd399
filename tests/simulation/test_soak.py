"""The soak reports its work, and the seed of a violation."""

from __future__ import annotations

import json

import pytest

from simulation import soak
from simulation.mutants import MUTANTS


def test_soak_prints_one_object_and_runs_all_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line is one JSON object with the number of steps."""
    monkeypatch.setattr("sys.argv", ["soak", "--steps", "2000"])
    monkeypatch.setattr(soak, "SEEDS_A_TASK", 2)
    assert soak.main() == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary.keys() == {
        *("steps", "seeds", "writes", "violations", "seconds", "steps_per_second")
    }
    assert summary["steps"] == summary["seeds"] * soak.STEPS >= 2000
    assert summary["violations"] == 0


def test_soak_stops_at_a_broken_seed_and_reports_it() -> None:
    """The report has the seed and the violation."""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "a new leader keeps the epoch"]
    with mutant.planted():
        total = soak.soak(0, 10)
    assert list(total.broken) == [total.seeds - 1]
    assert "I14" in total.broken[total.seeds - 1]
