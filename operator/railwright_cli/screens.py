"""A view that is drawn again, while the terminal comes and goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.live import Live


@contextmanager
def suspendable(live: Live) -> Iterator[Live]:
    """Show a view while in the block. When the user suspends the command, the terminal is left as
    it was before, and the view is shown again after that."""

    def suspend(_number: int, _frame: FrameType | None) -> None:
        live.stop()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # It goes on from here.
        signal.signal(signal.SIGTSTP, suspend)
        live.start(refresh=True)

    before = signal.signal(signal.SIGTSTP, suspend)
    try:
        with live:
            yield live
    finally:
        signal.signal(signal.SIGTSTP, before)
