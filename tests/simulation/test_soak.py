"""The soak of the operator reports its work, and the seed of a violation."""

from __future__ import annotations

import json

import pytest

from railwright_operator.write.ledger import LedgerStore
from railwright_scheduler.attempt.ledger import Ledger
from simulation import soak


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


def test_soak_stops_at_a_seed_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader acts on plans that it has not written."""

    async def held_only(store: LedgerStore, ledger: Ledger) -> None:
        store.ledger = ledger

    monkeypatch.setattr(LedgerStore, "write", held_only)
    total = soak.soak(1_000, 10)
    assert list(total.broken) == [1_000 + total.seeds - 1]
    assert "ViolationError" in total.broken[1_000 + total.seeds - 1]
