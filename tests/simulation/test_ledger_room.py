"""A ledger with room for two attempts of each state: jobs wait for it, and everything ends."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest

from fixtures.attempts import LOST, RUNNING, entry
from history import invariants
from history.invariants import Facts, ViolationError
from railwright_scheduler.attempt import ledger
from railwright_scheduler.attempt.ledger import Entry, EntryState, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.reasons import BindingBacklog, LedgerFull
from railwright_scheduler.model.snapshot import Job
from railwright_scheduler.policy.admission import Admission
from simulator.run import run

SEEDS = range(12)


@pytest.fixture
def small_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "COMMITTING_SIZE_MAX", 1000)
    monkeypatch.setattr(ledger, "ABORTING_SIZE_MAX", 850)
    monkeypatch.setattr(ledger, "LEDGER_SIZE_MAX", 1900)


@pytest.mark.usefixtures("small_ledger")
def test_a_full_ledger_holds_every_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[EntryState] = []
    add = ledger.LedgerBudget.add

    def counted(budget: ledger.LedgerBudget, new: Entry) -> bool:
        fits = add(budget, new)
        if not fits:
            refused.append(new.state)
        return fits

    after = Admission.after

    def checked(gate: Admission, job: Job, admit: Admit) -> BindingBacklog | LedgerFull | None:
        refusal = after(gate, job, admit)
        if refusal is not None:
            refused.append(EntryState.COMMITTING)
        return refusal

    monkeypatch.setattr(ledger.LedgerBudget, "add", counted)
    monkeypatch.setattr(Admission, "after", checked)
    phases = Counter[str]()
    for seed in SEEDS:
        phases += Counter(run(seed, "queue").phases)
    assert phases[Phase.SUCCEEDED] > 2 * len(SEEDS)
    assert set(refused) == {*EntryState}


@pytest.mark.parametrize(("ended", "breaks"), [(0, True), (1, False)])
def test_a_cause_is_cut_only_once_the_record_has_it(ended: int, breaks: bool) -> None:
    lost = entry(cause=replace(LOST, message="m"))
    ledger = Ledger(1, "i", "h", (lost,))
    record = replace(RUNNING, ended=ended)
    facts = Facts({}, (), ledger, records={"a": record}, policies={}, whole=(), revoked={})
    expected = pytest.raises(ViolationError, match="loses its cause") if breaks else nullcontext()
    cut = ledger.with_entries([lost.brief])
    invariants.check_ledger(ledger, cut)
    with expected:
        invariants.check_entries(facts, cut)


def test_an_abort_is_cut_in_no_other_way() -> None:
    ledger = Ledger(1, "i", "h", (entry(cause=LOST),))
    with pytest.raises(ViolationError, match="I14: the abort of"):
        invariants.check_ledger(ledger, ledger.with_entries([entry(cause=replace(LOST, nodes=()))]))
