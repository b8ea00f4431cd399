"""Pods by attempt and by node, kept up to date one change at a time.

A turn asks for the pods of a few attempts and for what is used on every node; walking 50,000 pods
for that would cost more than the decision. Live means: bound, and not Succeeded or Failed; a pod
that is terminating still holds its devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from railwright_operator.watch.records import PodRecord

AttemptKey = tuple[str, int]

K = TypeVar("K")
NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Ordered:
    home: str | None
    pods: tuple[PodRecord, ...]


class PodIndex:
    """What a watch's changes add up to; feed every change to ``change``."""

    def __init__(self, namespace_of: Callable[[str], str | None]) -> None:
        """``namespace_of`` a job, by its UID: pods elsewhere that name it are not its pods."""
        self._namespace_of = namespace_of
        self._by_attempt: dict[AttemptKey, dict[str, PodRecord]] = {}
        self._by_rank: dict[tuple[str, int, int], dict[str, PodRecord]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._foreign: dict[str, dict[str, int]] = {}
        self._live: dict[str, int] = {}
        self._held: dict[str, dict[str, PodRecord]] = {}
        self._ordered: dict[AttemptKey, _Ordered] = {}
        self._by_stem: dict[tuple[str, str], dict[str, PodRecord]] = {}

    def __repr__(self) -> str:
        return f"<PodIndex attempts={len(self._by_attempt)} nodes={len(self._used)}>"

    def change(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """One record was replaced by another; None stands for absence."""
        if old is not None:
            self._count(old, -1)
            self._drop(old)
        if new is not None:
            self._count(new, 1)
            if (stem := _stem(new)) is not None:
                self._by_stem.setdefault(stem, {})[new.uid] = new
            if new.job_uid is not None:
                key = new.job_uid, new.attempt
                self._by_attempt.setdefault(key, {})[new.uid] = new
                self._by_rank.setdefault((*key, new.node_rank), {})[new.uid] = new
                self._ordered.pop(key, None)

    def of(self, key: AttemptKey) -> tuple[PodRecord, ...]:
        """The pods of an attempt by node rank; of one rank the newest last. The same object until
        one of them changes.

        A rank can seem to have two: our own new pod is known before the end of the one that had its
        name, or even before that one's beginning.
        """
        home = self._namespace_of(key[0])
        held = self._ordered.get(key)
        if held is not None and held.home == home:
            return held.pods
        if key not in self._by_attempt:
            return ()
        pods = sorted(self._at_home(key), key=lambda record: (record.node_rank, record.rv))
        self._ordered[key] = _Ordered(home, tuple(pods))
        return self._ordered[key].pods

    def uid_of(self, job_uid: str, attempt: int, node_rank: int) -> str | None:
        """The UID of the live pod at this rank; None when there is none, or not just one."""
        home = self._namespace_of(job_uid)
        there = self._by_rank.get((job_uid, attempt, node_rank), {}).values()
        found = [
            record.uid
            for record in there
            if not record.terminal and home in (None, record.namespace)
        ]
        return found[0] if len(found) == 1 else None

    def strangers(
        self, job_uid: str, *, namespace: str, job_name: str, attempt: int
    ) -> tuple[str, ...]:
        """The names of pods that are spelt as those of this attempt, and are not of this job."""
        found = self._by_stem.get((namespace, f"{job_name}-{attempt}"), {})
        return tuple(sorted(pod.name for pod in found.values() if pod.job_uid != job_uid))

    def attempts(self) -> Iterable[AttemptKey]:
        """All attempts that have pods."""
        return self._by_attempt.keys()

    def used(self, node: str) -> Mapping[str, int]:
        """What live pods hold on this node, ours and others': the same object until it changes."""
        return self._used.get(node, NOTHING)

    def foreign(self, node: str) -> Mapping[str, int]:
        """What live pods hold on this node that are of no job."""
        return self._foreign.get(node, NOTHING)

    def holders(self, node: str) -> Mapping[AttemptKey, Mapping[str, int]]:
        """What the live pods of each attempt hold on this node."""
        found: dict[AttemptKey, dict[str, int]] = {}
        for record in self._held.get(node, {}).values():
            held = found.setdefault((record.job_uid or "", record.attempt), {})
            for resource, amount in record.requests.items():
                held[resource] = held.get(resource, 0) + amount
        return found

    def _at_home(self, key: AttemptKey) -> list[PodRecord]:
        home = self._namespace_of(key[0])
        found = self._by_attempt.get(key, {}).values()
        return [record for record in found if home in (None, record.namespace)]

    def _drop(self, record: PodRecord) -> None:
        if (stem := _stem(record)) is not None:
            _discard(self._by_stem, stem, record.uid)
        if record.job_uid is None:
            return
        key = record.job_uid, record.attempt
        self._ordered.pop(key, None)
        _discard(self._by_attempt, key, record.uid)
        _discard(self._by_rank, (*key, record.node_rank), record.uid)

    def _count(self, record: PodRecord, sign: int) -> None:
        if not record.node or record.terminal:
            return
        counts = [self._used] if record.job_uid is not None else [self._used, self._foreign]
        for each in counts:
            held = each[record.node] = dict(each.get(record.node, NOTHING))
            for resource, amount in record.requests.items():
                held[resource] = held.get(resource, 0) + sign * amount
                if not held[resource]:
                    # A pod may name thousands of resources that no node has.
                    del held[resource]
        if record.job_uid is not None and sign > 0:
            self._held.setdefault(record.node, {})[record.uid] = record
        elif record.job_uid is not None:
            del self._held[record.node][record.uid]
        self._live[record.node] = self._live.get(record.node, 0) + sign
        if not self._live[record.node]:
            del self._live[record.node], self._used[record.node]
            self._foreign.pop(record.node, None)
            self._held.pop(record.node, None)


def _discard(index: dict[K, dict[str, PodRecord]], key: K, uid: str) -> None:
    """Take the pod out; a key without pods goes with it."""
    pods = index[key]
    del pods[uid]
    if not pods:
        del index[key]


def _stem(record: PodRecord) -> tuple[str, str] | None:
    """What the names of an attempt's pods begin with; None for a name that none of them has."""
    stem, _, rank = record.name.rpartition("-")
    return (record.namespace, stem) if rank.isdecimal() else None
