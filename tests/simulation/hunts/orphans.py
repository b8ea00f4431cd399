"""Mutants of what the scheduler does about pods of jobs that do not exist."""

from __future__ import annotations

from simulation.planted import of_scheduler

HUNTS = (
    of_scheduler(
        "double booking is not found",
        "plan.py",
        "live_invariants.double_bookings(state.nodes, state.attempts, state.ledger)",
        "()",
        "orphans",
        1028,
    ),
)
