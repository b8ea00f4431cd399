"""Changes of how a job's record is derived, for the mutants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from railwright_scheduler.attempt.record import JobRecord

Original = Callable[..., Any]


def counts_twice(original: Original) -> Original:
    def fold(now: JobRecord, entries: Any, policy: Any) -> JobRecord:
        kept = tuple(entries)
        folded: JobRecord = original(now, kept, policy)
        again = [e for e in kept if e.cause is not None and e.cause.counted]
        seen_before = [e for e in again if e.attempt <= now.ended]
        return replace(folded, failures=folded.failures + len(seen_before))

    return fold


def spends_budget(original: Original) -> Original:
    return lambda now, *given: replace(original(now, *given), failures=now.failures + 1)


def revoked_commits_count(original: Original) -> Original:
    def reported(now: JobRecord, *given: Any) -> JobRecord:
        live: JobRecord = original(replace(now, ended=now.attempt - 1), *given)
        return replace(now, checkpoints=live.checkpoints)

    return reported


def groups_share_points(original: Original) -> Original:
    return lambda points, committed, *, groups: original(
        points, replace(committed, group=next(iter(groups))), groups=groups
    )
