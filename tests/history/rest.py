"""What must hold at the end of a history, once everybody had time to come to rest."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from dataclasses import replace

from history import invariants
from history.checker import HistoryChecker
from history.cluster import Cluster
from history.stored import Job
from railwright_scheduler.attempt.ledger import AttemptKey, EntryState
from railwright_scheduler.attempt.phases import FINAL, Phase

STANDING = FINAL | {Phase.QUEUED, Phase.SUSPENDED}


def check_rest(
    checker: HistoryChecker, *, down: Collection[str] = (), stuck: Collection[AttemptKey] = ()
) -> None:
    """I5, I12 and I13, of the last revision. Pods on nodes that are ``down`` cannot go,
    and their aborts stay; so do those of attempts that are ``stuck`` by pods of somebody else."""
    for finding in (
        *_in_flight(checker.cluster, down, stuck),
        *_orphans(checker.cluster),
        *_going(checker.cluster, down),
    ):
        checker.find(finding)
    for job in checker.cluster.jobs.values():
        for finding in _unsettled(checker.cluster, job):
            checker.find(finding)
    for pod in checker.cluster.pods.values():
        facts = replace(checker.cluster.facts(jobs=[pod.job_uid]), down=down)
        checker.run_check(functools.partial(invariants.check_rest, facts))


def _in_flight(
    cluster: Cluster, down: Collection[str], stuck: Collection[AttemptKey]
) -> Iterator[str]:
    stay = {pod.key for pod in cluster.pods.values() if pod.node in down}.union(stuck)
    for entry in cluster.ledger.entries:
        if entry.state is EntryState.ABORTING and entry.key in stay:
            continue
        name = f"{entry.namespace}/{entry.job_name}"
        yield f"I5: attempt {entry.attempt} of {name} is {entry.state} for ever"


def _orphans(cluster: Cluster) -> Iterator[str]:
    for key, owners in cluster.placements.items():
        if not cluster.jobs.keys() & {*owners}:
            yield f"I12: {key} outlives its job"


def _going(cluster: Cluster, down: Collection[str]) -> Iterator[str]:
    for job in cluster.jobs.values():
        if job.deleting:
            yield f"I13: job {job.name} is being deleted for ever"
    for key, pod in cluster.pods.items():
        if pod.deleting and pod.node not in down:
            yield f"I13: {key} is being deleted for ever"


def _unsettled(cluster: Cluster, job: Job) -> Iterator[str]:
    record = job.record
    if job.observed != job.generation:
        yield f"I5: of {job.name} generation {job.generation} stands, {job.observed} was answered"
    if not record.live and record.phase not in STANDING | {Phase.RECOVERING}:
        yield f"I5: {job.name} is {record.phase}, and attempt {record.attempt} is over"
    if record.live:
        there = {pod.node_rank for pod in cluster.bound((job.uid, record.attempt))}
        missing = cluster.sizes[job.uid, record.attempt] - len(there)
        if missing:
            yield f"I5: {job.name} is {record.phase}, and {missing} of its pods are not there"
