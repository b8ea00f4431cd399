"""The phases of a job, and the only ways from one to another."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a job. SUCCEEDED and FAILED are final. PROFILING: its attempt is a pre-run."""

    QUEUED = "Queued"
    PROFILING = "Profiling"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})

_AFTER_AN_ATTEMPT = (Phase.RECOVERING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)

EDGES = frozenset(
    (source, target)
    for source, targets in {
        Phase.QUEUED: (Phase.STARTING, Phase.PROFILING, Phase.SUSPENDED),
        Phase.PROFILING: (Phase.QUEUED, Phase.SUSPENDED, Phase.FAILED),
        Phase.STARTING: (Phase.RUNNING, Phase.QUEUED, *_AFTER_AN_ATTEMPT),
        Phase.RUNNING: _AFTER_AN_ATTEMPT,
        Phase.RECOVERING: (Phase.STARTING, Phase.QUEUED, Phase.SUSPENDED),
        Phase.SUSPENDED: (Phase.QUEUED,),
    }.items()
    for target in targets
)
"""``docs/life-of-a-job.md`` has the fact that opens each."""


def move(source: Phase, target: Phase) -> Phase:
    """The target, which must be reachable from the source by one edge, or be the source itself."""
    assert source is target or (source, target) in EDGES, f"no edge {source} -> {target}"
    return target
