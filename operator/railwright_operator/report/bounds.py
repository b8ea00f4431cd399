"""What a status may hold, whatever was seen: a status that its schema refuses is told to nobody.

Words come from pods, launchers and causes, and those from anywhere. They are cut here as bytes of
UTF-8, so that they fit wherever characters or bytes are counted.
"""

from __future__ import annotations

import math
import re

from railwright import wire
from railwright_api.training_job import LAST_LINES_LENGTH_MAX

SENTENCE_BYTES_MAX = 1024
WORD_LENGTH_MAX = 128
UNNAMED = "Unknown"


def sentence(text: str) -> str:
    """As much of the text as a message takes."""
    return wire.fitted(text, SENTENCE_BYTES_MAX)


def word(text: str) -> str:
    """The text as one word in CamelCase, as reasons are spelt: ``ErrImagePull``."""
    letters = re.sub(r"[^A-Za-z0-9]", "", text).lstrip("0123456789")[:WORD_LENGTH_MAX]
    return letters[:1].upper() + letters[1:] if letters else UNNAMED


def last_lines(text: str) -> str:
    """As much of the end of the text as ``lastLines`` takes."""
    return text.encode("utf-8", "replace").decode()[-LAST_LINES_LENGTH_MAX:]


def rate(value: float | None) -> float | None:
    """A rate; None for what cannot be one."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def real(value: float | None) -> float | None:
    """A number; None for what JSON cannot carry."""
    return value if value is not None and math.isfinite(value) else None


def within(value: int | None, low: int, high: int) -> int | None:
    """The number; None where it is out of its range, both ends included."""
    return value if value is not None and low <= value <= high else None
