"""A cluster at rest stays at rest for longer than any deadline of a job."""

from __future__ import annotations

import pytest

from railwright_scheduler.attempt.phases import Phase
from simulator.run import run

LONG_S = 1_000.0


@pytest.mark.parametrize(("seed", "phase"), [(6, Phase.QUEUED), (3, Phase.SUCCEEDED)])
def test_rest_lasts(seed: int, phase: Phase) -> None:
    """With a job that waits, and with one that has ended; no watch lost anything at the end."""
    assert run(seed, "all", rest_s=LONG_S).phases[phase]
