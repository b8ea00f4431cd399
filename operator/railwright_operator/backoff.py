"""How long to wait before trying again, so that many clients do not come back at once.

Capped exponential growth with jitter over the upper half: never less than half the step (a storm
of immediate retries would be the fault itself), never more than the cap.
"""

from __future__ import annotations

from random import Random


def delay_s(attempt: int, *, base_s: float, cap_s: float, rng: Random) -> float:
    """Seconds to wait after failure number ``attempt`` (0 is the first)."""
    assert attempt >= 0, f"attempt is {attempt}, expected 0 or more"
    step_s = min(cap_s, base_s * 2.0 ** min(attempt, 32))
    return step_s * (0.5 + rng.random() / 2)
