"""What launchers report of their ranks' steps ends an attempt that hangs, through all parts."""

from __future__ import annotations

from fixtures.observing import Watched
from railwright import protocol
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.hang import STACKS_S, STILL_S


def steps(rank: int, still_s: float) -> protocol.Steps:
    """This rank, in the middle of its training, made its last step so long ago."""
    return protocol.Steps(
        newest=100,
        slowest=100,
        ranks=(rank,),
        behind=0,
        reporting=1,
        still_s=still_s,
        lag_s=still_s,
        timed=100,
        p99_s=0.5,
        lag_p99_s=0.5,
        phase=protocol.Phase.TRAINING,
        finishing=False,
    )


def beat_for(seen: Watched, seconds: int, *, still: bool) -> None:
    """Both launchers send a heartbeat each second, until the attempt ends."""
    for second in range(seconds):
        seen.now_s += 1.0
        for rank in range(seen.num_nodes):
            seen.heartbeat(rank, steps=steps(rank, second if still else 0.2))
        if not isinstance(seen.verdict(), Ongoing):
            return


def test_stalled_steps_end_the_attempt() -> None:
    seen = Watched()
    seen.run_cycle()
    beat_for(seen, 2 * int(STILL_S), still=False)
    assert isinstance(seen.verdict(), Ongoing)
    beat_for(seen, int(STILL_S + STACKS_S) + 10, still=True)
    assert seen.cause().code is CauseCode.HUNG
