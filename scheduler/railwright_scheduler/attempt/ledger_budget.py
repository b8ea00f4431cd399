"""The shares of the ledger's bytes: one for revocations, one for new gangs.

A revocation that does not fit waits for a later plan, and so does a new gang, but neither waits for
the other. The remaining bytes are for committing entries that become aborting ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from railwright_scheduler.attempt.ledger import Entry, EntryState

LEDGER_SIZE_MAX = 1_400_000
"""Bytes as stored. etcd takes requests of up to 1.5 MiB."""

ABORTING_SIZE_MAX = 1_020_000
"""More than 2,000 attempts of eight nodes each, as their names are commonly."""

COMMITTING_SIZE_MAX = 300_000
"""A gang of 16,384 nodes needs about 100,000 bytes for their names."""


class LedgerBudget:
    """What the entries of each state take, and whether another one fits.

    What leaves the ledger frees its bytes for the next plan, not for this one. One entry alone may
    take more than the share of its state. The committing entries of ``hindered`` gangs count in the
    whole ledger and in no share.
    """

    def __init__(
        self, entries: Iterable[Entry], hindered: Collection[tuple[str, int]] = ()
    ) -> None:
        self._sizes = dict.fromkeys(EntryState, 0)
        self._keys, self.hindered = hindered, 0
        for entry in entries:
            self._count(entry, entry.size)
        self.is_tight = self._sizes[EntryState.ABORTING] > ABORTING_SIZE_MAX // 2

    def __repr__(self) -> str:
        shares = " ".join(f"{state}={size}" for state, size in self._sizes.items())
        return f"<LedgerBudget {shares} hindered={self.hindered}>"

    def add(self, entry: Entry) -> bool:
        """Whether a new entry fits; it is counted if it does."""
        held, size = self._sizes[entry.state], entry.size
        is_new = entry.state is EntryState.COMMITTING
        share = COMMITTING_SIZE_MAX if is_new else ABORTING_SIZE_MAX
        if (held and held + size > share) or self._total + size > LEDGER_SIZE_MAX:
            return False
        self._sizes[entry.state] += size
        return True

    def change(self, before: Entry, after: Entry) -> bool:
        """Whether an entry may become this one; it is counted as that if it may."""
        was, now = before.size, after.size
        if now > was and self._total + now - was > LEDGER_SIZE_MAX:
            return False
        self._count(before, -was)
        self._count(after, now)
        return True

    def held(self, state: EntryState) -> int:
        """The bytes of all entries in the share of this state."""
        return self._sizes[state]

    def _count(self, entry: Entry, size: int) -> None:
        if entry.state is EntryState.COMMITTING and entry.key in self._keys:
            self.hindered += size
        else:
            self._sizes[entry.state] += size

    @property
    def _total(self) -> int:
        return sum(self._sizes.values()) + self.hindered
