"""Bounds of what a status holds: the API server refuses one that its schema does not allow.

Words come from pods, launchers and causes, and those from anywhere. They are cut here as bytes of
UTF-8, so that they fit wherever characters or bytes are counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from railwright import protocol
from railwright_api.training_job_status import LAST_LINES_LENGTH_MAX

SENTENCE_BYTES_MAX = 1024
"""What events.k8s.io takes of a note; it counts bytes."""
NAME_BYTES_MAX = 1024
WORD_LENGTH_MAX = 128
UNNAMED = "Unknown"


def sentence(text: str) -> str:
    """As much of the text as a message or a note takes."""
    return protocol.fitted(plain(text), SENTENCE_BYTES_MAX)


def name(text: str) -> str:
    """As much of the text as what names something takes."""
    return protocol.fitted(plain(text), NAME_BYTES_MAX) or UNNAMED


def plain(text: str, *, kept: str = "") -> str:
    """The text with what steers a terminal, or turns its direction, escaped: it comes from ranks.

    ``kept`` are such characters that may stay.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def word(text: str) -> str:
    """The text as one word in CamelCase, as reasons are spelt: ``ErrImagePull``."""
    letters = re.sub(r"[^A-Za-z0-9]", "", text).lstrip("0123456789")[:WORD_LENGTH_MAX]
    return letters[:1].upper() + letters[1:] if letters else UNNAMED


def last_lines(text: str) -> str:
    """As much of the end of the text as ``lastLines`` takes."""
    return plain(text, kept="\n\t")[-LAST_LINES_LENGTH_MAX:]


def number(value: float | None, *, low: float = -math.inf) -> float | None:
    """A number; None for what JSON cannot carry, or what is too low."""
    return value if value is not None and math.isfinite(value) and value >= low else None


def within(value: int | None, low: int, high: int) -> int | None:
    """The number; None where it is out of its range, both ends included."""
    return value if value is not None and low <= value <= high else None


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
