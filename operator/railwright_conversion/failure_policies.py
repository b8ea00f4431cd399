"""The failure policy of a job, from its spec to the scheduler's value."""

from __future__ import annotations

from railwright_api import failure_policy
from railwright_scheduler.attempt.failure_policy import FailurePolicy


def convert(policy: failure_policy.FailurePolicy) -> FailurePolicy:
    """How many failures a job may have, and in what time."""
    return FailurePolicy(policy.backoff_limit, policy.window_seconds)
