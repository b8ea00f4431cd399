"""The output of the demo: a picture redrawn in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from railwright_demo import drawing
from railwright_demo.scene import Scene

UP = "\x1b[{rows}F"
CLEAR_BELOW = "\x1b[J"
PAUSE_S = 0.25
SIZE_UNKNOWN = os.terminal_size((100, 40))


class Screen:
    """Lines that stay, and below them, on a terminal, one picture that changes."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._began_s = clock()
        self._live = stream.isatty()
        self._rows = 0
        self._drawn_s = 0.0
        self._before: Scene | None = None

    def __repr__(self) -> str:
        return f"<Screen {'redrawn' if self._live else 'lines'}>"

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return self._clock() - self._began_s

    def report(self, text: str) -> None:
        """One line that stays."""
        self._erase()
        print(f"{drawing.clock(self.elapsed_s)}  {text}", file=self._stream, flush=True)

    def show(self, scene: Scene, title: str) -> None:
        """What is seen now."""
        if not self._live:
            for line in drawing.changes(self._before, scene):
                print(line, file=self._stream, flush=True)
            self._before = scene
        elif self._clock() - self._drawn_s >= PAUSE_S:
            self._redraw(drawing.picture(scene, title))

    def rest(self) -> None:
        """What is shown stays; the next picture is drawn below it."""
        self._rows = 0
        self._before = None

    def _redraw(self, rows: list[str]) -> None:
        # A line that wraps, or a picture higher than the terminal, could not be drawn over.
        size = self._size()
        shown = [row[: size.columns - 1] for row in rows[: size.lines - 1]]
        self._erase()
        self._stream.write("".join(f"{row}\n" for row in shown))
        self._stream.flush()
        self._rows = len(shown)
        self._drawn_s = self._clock()

    def _erase(self) -> None:
        if self._rows:
            self._stream.write(UP.format(rows=self._rows) + CLEAR_BELOW)
            self._rows = 0

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except OSError:
            return SIZE_UNKNOWN
        return size if size.columns > 1 and size.lines > 1 else SIZE_UNKNOWN
