"""The ledger: every in-flight attempt of the cluster in one value, behind one compare-and-swap.

Kubernetes has no transaction over two objects, so a gang's commit is one write of this one object,
guarded by its resourceVersion, before any Placement, pod or delete. An attempt is in it while its
gang is being bound (COMMITTING) and from its revocation until its last live pod is gone (ABORTING);
a settled attempt is not in it. A new leader raises the epoch before it does anything else, so that
every write of the leader before it fails.

Four rules make this enough (simulated: without any one of them a node is given away twice or a
finished gang is killed): the compare-and-swap with the epoch; bindings that carry the pod's UID,
and a roll-back that always makes new pods; the epoch read again between the sight of a pod and its
binding; the abort written before the first delete.

The object has two shares of bytes, one for revocations and one for new gangs. A revocation that
does not fit waits for a later plan, and so does a new gang, but neither waits for the other. The
remaining bytes are for committing entries that become aborting ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from railwright_scheduler.attempt import node_list
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.snapshot import Amounts, Purpose

AttemptKey = tuple[str, int]
"""UID of a job, and number of the attempt."""

LEDGER_SIZE_MAX = 1_400_000
"""Bytes as stored. etcd takes requests of up to 1.5 MiB."""

ABORTING_SIZE_MAX = 1_020_000
"""More than 2,000 attempts of eight nodes each, as their names are commonly."""

COMMITTING_SIZE_MAX = 300_000
"""A gang of 16,384 nodes needs about 100,000 bytes for their names."""

ENTRY_SIZE = 80
"""Bytes of an entry as JSON without its texts."""
ROLE_SIZE = 60
"""The same of a role."""
CAUSE_SIZE = 120
"""The same of its cause."""
TIME_SIZE = 30
"""The same of the time of its cause."""
MERITS_SIZE = 400
"""The same of its score."""
CROSSING_SIZE = 100
"""The same of what crosses the domains of one level."""
FIELD_SIZE = 16
"""The name of a text's field, the longest of them, with all punctuation."""
NUMBER_SIZE = 20
"""The longest integer and its punctuation."""
ESCAPE_SIZE = 5
"""What the API server adds for each character that it stores as ``\\u0000``."""

_ESCAPED = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029]')


class EntryState(StrEnum):
    """COMMITTING: pods may be created and bound. ABORTING: they may only be deleted."""

    COMMITTING = "Committing"
    ABORTING = "Aborting"


@dataclass(frozen=True, slots=True)
class EntryRole:
    """Equal pods of an attempt: their role's name, how many they are, and what each requests."""

    name: str
    replicas: int
    per_pod: Amounts


@dataclass(frozen=True, slots=True)
class Entry:
    """One in-flight attempt. Its pods are numbered through over its ``roles`` in their order: for
    pod p capacity is assumed on ``nodes[p]`` until the pod is bound to it.

    ``spans`` counts the domains it was planned to use, by level. ``score`` is the placement score
    of its order of ranks, on the links and node speeds of ``topology_hash``. All of its pods are
    made from the spec with this ``spec_hash``. An aborting entry has none of these four: it keeps
    its ``purpose``, what fences the attempt and the nodes of its pods. The entry of an attempt that
    ran has no ``roles`` either, as all of its pods were bound.
    """

    job_uid: str
    namespace: str
    job_name: str
    attempt: int
    state: EntryState
    nodes: tuple[str, ...]
    roles: tuple[EntryRole, ...]
    cause: Cause | None = None
    spans: tuple[tuple[str, int], ...] = ()
    spec_hash: str = ""
    score: PlacementScore | None = None
    topology_hash: str = ""
    purpose: Purpose = Purpose.TRAINING

    def __post_init__(self) -> None:
        assert (self.state is EntryState.ABORTING) == (self.cause is not None), self
        pods = sum(role.replicas for role in self.roles)
        assert pods == len(self.nodes) or not self.roles, (self.key, pods, len(self.nodes))

    @property
    def key(self) -> AttemptKey:
        """The job's UID and the number of the attempt."""
        return self.job_uid, self.attempt

    def place(self, pod: int) -> tuple[EntryRole, int]:
        """The role of the pod with this number, and its index there."""
        for role in self.roles:
            if pod < role.replicas:
                return role, pod
            pod -= role.replicas
        raise IndexError(f"{self.key} has no pod {pod} beyond its roles")

    @property
    def amounts(self) -> list[Amounts]:
        """The requests of each pod; empty if all pods were bound."""
        if not self.roles:
            return [{}] * len(self.nodes)
        return [role.per_pod for role in self.roles for _ in range(role.replicas)]

    @property
    def size(self) -> int:
        """The most bytes that it takes in the stored ledger."""
        texts = [self.job_uid, self.namespace, self.job_name, self.spec_hash, self.topology_hash]
        texts += [self.purpose] if self.purpose is not Purpose.TRAINING else []
        texts += [*node_list.fold(self.nodes), *(level for level, _ in self.spans)]
        size = ENTRY_SIZE + NUMBER_SIZE * len(self.spans)
        for role in self.roles:
            texts += [role.name, *role.per_pod]
            size += ROLE_SIZE + NUMBER_SIZE * len(role.per_pod)
        if self.score is not None:
            levels = [each.level for each in self.score.crossing]
            found = self.score.predicted
            texts += [*levels, *self.score.other_devices]
            texts += found.machines if found is not None else ()
            size += MERITS_SIZE + CROSSING_SIZE * len(levels)
        if self.cause is not None:
            texts += [self.cause.message, self.cause.last_lines]
            texts += [self.cause.node or "", self.cause.signal or ""]
            size += CAUSE_SIZE + (len(str(len(self.nodes))) + 1) * len(self.cause.nodes)
            size += TIME_SIZE if self.cause.time_s else 0
        return size + sum(map(_size, texts))

    def aborted(self, cause: Cause) -> Entry:
        """The same attempt, revoked for this cause."""
        assert self.state is EntryState.COMMITTING, self
        return replace(
            self,
            state=EntryState.ABORTING,
            cause=cause,
            spans=(),
            spec_hash="",
            score=None,
            topology_hash="",
        )

    @property
    def brief(self) -> Entry:
        """The same without texts and time of its cause, which the job's status has by now."""
        cause = self.cause
        assert cause is not None, self
        node = None if cause.node in cause.nodes else cause.node
        return replace(self, cause=replace(cause, message="", node=node, last_lines="", time_s=0))


@dataclass(frozen=True, slots=True)
class Ledger:
    """``incarnation`` is drawn once, when the object is made. A restored backup has the same one,
    and an epoch that was used before (docs/restore.md)."""

    epoch: int
    incarnation: str
    holder: str
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        keys = [entry.key for entry in self.entries]
        assert len(set(keys)) == len(keys), f"an attempt is twice in the ledger: {sorted(keys)}"
        committing = [e.job_uid for e in self.entries if e.state is EntryState.COMMITTING]
        assert len(set(committing)) == len(committing), f"two commits of one job: {committing}"

    def with_entries(self, entries: Iterable[Entry]) -> Ledger:
        """The same ledger with these entries, in one order whatever theirs."""
        return replace(self, entries=tuple(sorted(entries, key=lambda entry: entry.key)))

    def taken_over(self, holder: str) -> Ledger:
        """The ledger that a new leader writes first, with the next epoch."""
        return replace(self, epoch=self.epoch + 1, holder=holder)


def by_job(entries: Iterable[Entry]) -> dict[str, tuple[Entry, ...]]:
    """These entries by the UID of their job, in the order given."""
    found: dict[str, tuple[Entry, ...]] = {}
    for entry in entries:
        found[entry.job_uid] = (*found.get(entry.job_uid, ()), entry)
    return found


class LedgerBudget:
    """What the entries of each state take, and whether another one fits.

    What leaves the ledger frees its bytes for the next plan, not for this one. One entry alone may
    take more than the share of its state. The committing entries of ``hindered`` gangs count in the
    whole ledger and in no share.
    """

    def __init__(self, entries: Iterable[Entry], hindered: Collection[AttemptKey] = ()) -> None:
        self._sizes = dict.fromkeys(EntryState, 0)
        self._keys, self.hindered = hindered, 0
        for entry in entries:
            self._count(entry, entry.size)
        self.is_tight = self._sizes[EntryState.ABORTING] > ABORTING_SIZE_MAX // 2

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


def _size(text: str) -> int:
    escapes = len(_ESCAPED.findall(text))
    return FIELD_SIZE + len(text.encode()) + ESCAPE_SIZE * escapes if text else 0
