"""Index pods by attempt and by node, one change at a time.

A scheduling cycle needs the pods of a few attempts and the usage of every node; a walk over 50,000
pods for that would cost more than the decision. Live means: bound, and not Succeeded or Failed; a
pod that is terminating still holds its devices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railwright_operator.watch.records import PodRecord
from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.model.rank_layout import RankLayout
from railwright_scheduler.model.snapshot import Amounts
from railwright_scheduler.usage import NodeUsage, sum_usage

logger = logging.getLogger(__name__)

NO_USAGE = NodeUsage()


@dataclass(frozen=True, slots=True)
class _Ordered:
    home: str | None
    layout: RankLayout | None
    pods: tuple[PodRecord, ...]
    observed: ObservedAttempt


@dataclass(eq=False)
class PodIndex:
    """The pods of a watch. ``change`` must be called for every change.

    ``namespace_of`` a job, by its UID: pods in other namespaces that name it do not count.
    ``layout_of`` an attempt, or None if unknown: a pod is the rank that it claims only if its role
    and index are those of this rank.
    """

    namespace_of: Callable[[str], str | None]
    layout_of: Callable[[AttemptKey], RankLayout | None] = lambda key: None

    def __post_init__(self) -> None:
        self._mislabelled: set[str] = set()
        self._by_attempt: dict[AttemptKey, dict[str, PodRecord]] = {}
        self._by_rank: dict[tuple[str, int, int], dict[str, PodRecord]] = {}
        self._by_node: dict[str, dict[str, PodRecord]] = {}
        self._by_stem: dict[tuple[str, str, str], dict[str, PodRecord]] = {}
        self._ordered: dict[AttemptKey, _Ordered] = {}
        self._usage: dict[str, NodeUsage] = {}

    def __repr__(self) -> str:
        return f"<PodIndex attempts={len(self._by_attempt)} nodes={len(self._by_node)}>"

    def change(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Take in a change of a pod; None means absent."""
        if _use(old) != _use(new):
            for node in {each.node for each in (old, new) if each is not None}:
                self._usage.pop(node, None)
        if old is not None:
            if new is None or (new.job_uid, new.attempt) != (old.job_uid, old.attempt):
                self._mislabelled.discard(old.uid)
            for index, key in self._entries(old):
                del index[key][old.uid]
                if not index[key]:
                    del index[key]
        if new is not None:
            for index, key in self._entries(new):
                index.setdefault(key, {})[new.uid] = new

    def of(self, key: AttemptKey) -> tuple[PodRecord, ...]:
        """The pods of an attempt, by node rank and then by age. The same object until one of them
        changes.

        A rank can have two pods here: the response to a create may arrive before the deletion of
        the pod that had the name.
        """
        return self._in_order(key).pods if key in self._by_attempt else ()

    def observed(self) -> dict[AttemptKey, ObservedAttempt]:
        """Every attempt that has pods, with these alone, in the order of ``of``. Each is the same
        object until one of its pods changes."""
        return {key: self._in_order(key).observed for key in self._by_attempt}

    def _in_order(self, key: AttemptKey) -> _Ordered:
        home, layout = self.namespace_of(key[0]), self.layout_of(key)
        held = self._ordered.get(key)
        if held is None or (held.home, held.layout) != (home, layout):
            pods = [pod for pod in self._by_attempt[key].values() if home in (None, pod.namespace)]
            ranks = [pod for pod in pods if self._is_rank(pod, layout)]
            ranks.sort(key=lambda pod: (pod.node_rank, pod.rv))
            observed = ObservedAttempt(tuple(pod.core for pod in ranks if pod.core is not None))
            held = self._ordered[key] = _Ordered(home, layout, tuple(ranks), observed)
        return held

    @property
    def mislabelled(self) -> int:
        """The number of pods of live attempts that are no rank of theirs."""
        return len(self._mislabelled)

    def _is_rank(self, pod: PodRecord, layout: RankLayout | None) -> bool:
        """Whether the pod is the rank that it claims. Logs once for each pod that is not."""
        if layout is None or layout.has(pod.node_rank, role=pod.role, index=pod.index):
            self._mislabelled.discard(pod.uid)
            return True
        if pod.uid not in self._mislabelled:
            self._mislabelled.add(pod.uid)
            claims = {"role": pod.role, "index": pod.index, "node_rank": pod.node_rank}
            extra = {"job_uid": pod.job_uid, "attempt": pod.attempt, "pod": pod.name, **claims}
            logger.warning("pod is no rank of its attempt", extra=extra)
        return False

    def uid_of(self, job_uid: str, attempt: int, node_rank: int) -> str | None:
        """The UID of the live pod at this rank; None when there is none, or not just one."""
        home, layout = self.namespace_of(job_uid), self.layout_of((job_uid, attempt))
        there = self._by_rank.get((job_uid, attempt, node_rank), {}).values()
        found = [
            record.uid
            for record in there
            if not record.terminal
            and home in (None, record.namespace)
            and self._is_rank(record, layout)
        ]
        return found[0] if len(found) == 1 else None

    def name_conflicts(
        self,
        job_uid: str,
        *,
        namespace: str,
        job_name: str,
        replicas: Mapping[str, int],
        attempt: int,
    ) -> tuple[str, ...]:
        """Pods that have the names of this attempt's pods and are not of this job; the attempt has
        so many of each role."""
        found = []
        for role, count in replicas.items():
            key = (namespace, f"{job_name}-{role}", str(attempt))
            for pod in self._by_stem.get(key, {}).values():
                index = int(pod.name.rsplit("-", 2)[1])
                if pod.job_uid != job_uid and index < count:
                    found.append(pod.name)
        return tuple(sorted(found))

    def usage(self, node: str) -> NodeUsage:
        """The usage of this node by live pods, summed again only after a change of one of them: it
        is the same object until then."""
        if node not in self._by_node:
            return NO_USAGE
        if node not in self._usage:
            pods = self._by_node[node].values()
            self._usage[node] = sum_usage(
                ours=(pod.requests for pod in pods if pod.job_uid is not None),
                foreign=(pod.requests for pod in pods if pod.job_uid is None),
            )
        return self._usage[node]

    def _entries(self, record: PodRecord) -> Iterator[tuple[dict[Any, dict[str, PodRecord]], Any]]:
        """The indexes with this record, each with its key there. Drops the order of its
        attempt."""
        if record.node and not record.terminal:
            yield self._by_node, record.node
        stem, _, attempt = record.name.rpartition("-")
        name, _, index = stem.rpartition("-")
        if index.isdecimal() and attempt.isdecimal():
            yield self._by_stem, (record.namespace, name, attempt)
        if record.job_uid is not None:
            key = record.job_uid, record.attempt
            self._ordered.pop(key, None)
            yield self._by_attempt, key
            yield self._by_rank, (*key, record.node_rank)


def _use(record: PodRecord | None) -> tuple[str, Amounts, bool] | None:
    """What a pod uses of its node, and whether it is of a job; None if it uses nothing."""
    if record is None or not record.node or record.terminal:
        return None
    return record.node, record.requests, record.job_uid is None
