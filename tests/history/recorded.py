"""The history of a control plane on which an operator ran, judged as a whole."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from history import notes
from history.checker import HistoryChecker
from history.rest import check_rest
from history.trail import Violation
from history.writes import after, too_many, writes
from railwright_api import names
from railwright_testbed import ControlPlane, audit, history, waiting
from railwright_testbed.errors import TestbedError

COMES_TO_REST_S = 90.0
RESTS_S = 7.0
"""Longer than the operator waits to tell again what changed: at first it may, and be late with it;
then it must not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was read, and what was found."""

    revisions: int
    violations: Sequence[Violation]


FABRIC_WRITTEN = "I20: at rest the controllers ask to patch fabrics"


def check_history(plane: ControlPlane, *, rested_at: datetime | None = None) -> Verdict:
    """Check all that happened so far; with ``rested_at``, also that it ended at rest since then.

    The requests are read at once: what is written while etcd's history is read is not judged.
    """
    requests = tuple(audit.requests(plane.audit_log))
    done = writes(requests)
    checker = HistoryChecker(done.deletes)
    checker.read(history.revisions(plane.etcd))
    for finding in too_many(done, checker.cluster.attempts_at):
        checker.find(finding)
    if rested_at is not None:
        check_rest(checker)
        found = list(after(requests, rested_at))
        for _ in range(min(checker.timed_writes, found.count(FABRIC_WRITTEN))):
            found.remove(FABRIC_WRITTEN)
        for finding in found:
            checker.find(finding)
    return Verdict(checker.revisions, checker.trail.violations)


def demand_sound_history(plane: ControlPlane) -> None:
    """Once no test runs any more: delete all jobs, let all come to rest, and check the history.

    AssertionError tells every violation. The operator must run.
    """
    plane.kubectl("delete", names.TRAINING_JOBS, "--all", "--all-namespaces", "--wait=false")
    # Whatever is still there then is found again in the history, and told from it.
    with contextlib.suppress(TestbedError):
        waiting.until(lambda: not _left(plane), "nothing left", deadline_s=COMES_TO_REST_S)
    _pass(2 * RESTS_S)
    notes.rest_begins(plane)
    rested_at = datetime.now(UTC)
    _pass(RESTS_S)
    verdict = check_history(plane, rested_at=rested_at)
    found = "\n".join(map(str, verdict.violations))
    assert not verdict.violations, f"of {verdict.revisions} revisions in etcd's history:\n{found}"


def _pass(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    waiting.until(lambda: time.monotonic() > end_s, "time to pass", deadline_s=2 * seconds)


def _left(plane: ControlPlane) -> list[str]:
    """What there still is of jobs."""
    with contextlib.closing(plane.client()) as client:
        group = f"/apis/{names.API_VERSION}"
        paths = [f"{group}/{names.TRAINING_JOBS}", f"{group}/{names.PLACEMENTS}"]
        paths.append(f"/api/v1/pods?labelSelector={names.LABEL_JOB_UID}")
        objects = [item["metadata"]["name"] for path in paths for item in client.get(path)["items"]]
        ledgers = client.get(f"{group}/{names.LEDGERS}")["items"]
    entries = [entry["jobName"] for each in ledgers for entry in each["spec"].get("entries", ())]
    return objects + entries
