"""The phases of a job, and the only ways from one to another, each with the fact that opens it."""

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

EDGES: dict[tuple[Phase, Phase], str] = {
    (Phase.QUEUED, Phase.STARTING): "an attempt of it is in the ledger, committing",
    (Phase.QUEUED, Phase.SUSPENDED): "spec.suspend is set",
    (Phase.QUEUED, Phase.PROFILING): "a pre-run of it is in the ledger, committing",
    (Phase.PROFILING, Phase.QUEUED): "the pre-run is in the ledger, aborting",
    (Phase.PROFILING, Phase.FAILED): "the pre-run is revoked, and the job's deadline has passed",
    (Phase.PROFILING, Phase.SUSPENDED): "spec.suspend is set and the pre-run is revoked",
    (Phase.STARTING, Phase.RUNNING): "every rank passed the barrier",
    (Phase.STARTING, Phase.QUEUED): "the gang was rolled back before all of it was bound",
    (Phase.STARTING, Phase.RECOVERING): "the attempt is in the ledger, aborting",
    (Phase.STARTING, Phase.SUSPENDED): "spec.suspend is set and the attempt is revoked",
    (Phase.STARTING, Phase.SUCCEEDED): "every rank ended with 0",
    (Phase.STARTING, Phase.FAILED): "the attempt is revoked, and the budget is spent, its image "
    "does not exist or its deadline has passed",
    (Phase.RUNNING, Phase.RECOVERING): "the attempt is in the ledger, aborting",
    (Phase.RUNNING, Phase.SUSPENDED): "spec.suspend is set and the attempt is revoked",
    (Phase.RUNNING, Phase.SUCCEEDED): "every rank ended with 0",
    (Phase.RUNNING, Phase.FAILED): "the attempt is revoked, and the budget is spent or the "
    "job's deadline has passed",
    (Phase.RECOVERING, Phase.STARTING): "the next attempt is in the ledger, committing",
    (Phase.RECOVERING, Phase.QUEUED): "the next attempt has to wait for nodes",
    (Phase.RECOVERING, Phase.SUSPENDED): "spec.suspend is set",
    (Phase.SUSPENDED, Phase.QUEUED): "spec.suspend is cleared",
}


def move(source: Phase, target: Phase) -> Phase:
    """The target, which must be reachable from the source by one edge, or be the source itself."""
    assert source is target or (source, target) in EDGES, f"no edge {source} -> {target}"
    return target
