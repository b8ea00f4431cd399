"""Times, sizes and numbers of things as people read them."""

from __future__ import annotations

import math

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def seconds(time_s: float) -> str:
    """Of a second or more, or of less."""
    return f"{time_s:,.3g} s" if time_s >= 1 else f"{time_s * 1e3:,.3g} ms"


def size(number: float) -> str:
    """Of so many bytes."""
    power = min(len(_SIZES) - 1, max(0, math.floor(math.log(max(number, 1), 1000))))
    return f"{number / 1000**power:.3g} {_SIZES[power]}"


def count(number: int, what: str) -> str:
    """A number of something, such as ``1,024 nodes``."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{plural if number != 1 else ''}"
