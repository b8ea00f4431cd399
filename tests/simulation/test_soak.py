"""The soak of the operator reports its work, and the seed of a violation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from railwright_operator.write.ledger import LedgerStore
from railwright_scheduler.attempt.ledger import Ledger
from simulation import kept_seeds, plan_invariants, soak


def test_soak_prints_one_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--requests", "100"])
    monkeypatch.setattr(soak, "SEEDS_A_TASK", 1)
    assert soak.main() == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["requests"] >= 100
    assert summary["plans"] >= 16 * soak.COURSES_A_SEED
    assert summary["violations"] == 0
    assert summary["seeds"] >= 1


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of kept seeds, for this test alone."""
    file = tmp_path / "kept"
    file.write_text("all 58\n")
    monkeypatch.setattr(kept_seeds, "FILE", file)
    return file


def test_soak_keeps_each_seed_that_breaks(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    """A leader acts on plans that it has not written."""

    async def held_only(store: LedgerStore, ledger: Ledger) -> None:
        store.ledger = ledger

    monkeypatch.setattr(LedgerStore, "write", held_only)
    total = soak.soak(1_000, 10)
    assert total.seeds == 10
    assert len(total.broken) > 1
    assert "ViolationError" in next(iter(total.broken.values()))
    assert kept_seeds.runs() == (("all", 58), *((soak.emphasis_of(s), s) for s in total.broken))
    # A second time it is there already: the list has no line more.
    soak.soak(next(iter(total.broken)), 1)
    assert kept.read_text().count("\n") == 1 + len(total.broken)


def test_course_that_breaks_is_kept_whatever_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is no violation of an invariant, and so ends the soak with its traceback."""
    monkeypatch.setattr(plan_invariants, "check", lambda course: 1 // (course - 4_001))
    with pytest.raises(ZeroDivisionError):
        soak.soak(1_000, 1)
    assert kept_seeds.courses() == (4_001,)
    assert kept_seeds.runs() == (("all", 58),)
