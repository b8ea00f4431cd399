"""What the reporter does about jobs that have ended: expiry, and changes of their spec."""

from __future__ import annotations

import pytest

from fixtures import reporting
from fixtures.reporting import Desk, Raw
from railwright_kube import errors
from railwright_operator.report import reporter

FINISHED = {"phase": "Succeeded", "attempt": 1, "endedAttempt": 1}
EXPIRED = FINISHED | {"finishedAt": "2026-01-02T03:04:05Z"}


@pytest.mark.parametrize("spec", [{}, {"roles": 1}], ids=["readable", "of a later version"])
async def test_finished_job_that_is_changed_stays_observed(spec: Raw) -> None:
    """`kubectl wait` ignores conditions of an earlier generation."""
    desk = Desk()
    complete = {"type": "Complete", "status": "True", "observedGeneration": 1}
    status = FINISHED | {"reason": "Succeeded", "observedGeneration": 1, "conditions": [complete]}
    job = reporting.raw_job("old", spec=spec, status=status | {"later": "kept"})
    job["metadata"]["generation"] = 2
    path = desk.add(job)
    for _ in range(2):
        await desk.run_cycle()
    observed = {"observedGeneration": 2, "conditions": [complete | {"observedGeneration": 2}]}
    assert desk.store.objects[path]["status"] == status | observed | {"later": "kept"}
    assert desk.store.count("patch") == 1


async def test_refused_deletion_is_retried_with_backoff() -> None:
    """A policy refuses the deletion of an expired job."""
    desk = Desk()
    path = desk.add(reporting.raw_job("old", spec={"ttlSecondsAfterFinished": 0}, status=EXPIRED))
    desk.store.refusals["delete", path] = errors.ForbiddenError(
        403, "Forbidden", message="a webhook keeps it"
    )
    for _ in range(3600):
        await desk.run_cycle()
        desk.now_s += 1.0
    assert 12 <= desk.store.count("delete") <= 40
    desk.store.refusals.clear()
    desk.now_s += reporter.EXPIRY_BACKOFF_S.cap_s
    await desk.run_cycle()
    assert path not in desk.store.objects
