"""What cancels an attempt while it is being bound."""

from __future__ import annotations

import pytest

from fixtures.attempts import entry, seen
from railwright_scheduler import commit_plan
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.cluster_state import ObservedJob


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (seen(spec_hash="2-same"), None),
        (seen(spec_hash="2-same", suspend=True), CauseCode.SUSPENDED),
        (seen(spec_hash="2-other"), CauseCode.SUSPENDED),
        (seen(spec_hash=""), CauseCode.COMMIT_REFUSED),
        (None, CauseCode.JOB_DELETED),
    ],
)
def test_commit_is_cancelled_by_its_job(job: ObservedJob | None, code: CauseCode | None) -> None:
    cause = commit_plan.cancels_commit(entry(spec_hash="2-same"), job, now_s=0)
    assert (cause and cause.code) is code
