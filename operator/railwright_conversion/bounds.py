"""Bounds of the fields of a status: the API server refuses a status that breaks its schema.

Text comes from pods, launchers and causes, and can have any content. It is cut here as bytes of
UTF-8, so that it fits wherever characters or bytes are counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from railwright import protocol
from railwright_api.training_job_status import LAST_LINES_LENGTH_MAX

SENTENCE_BYTES_MAX = 1024
"""The limit of events.k8s.io for a note, in bytes."""
NAME_BYTES_MAX = 1024
WORD_LENGTH_MAX = 128
UNNAMED = "Unknown"


def sentence(text: str) -> str:
    """The text, cut to the limit of messages and notes."""
    return protocol.fitted(plain(text), SENTENCE_BYTES_MAX)


def name(text: str) -> str:
    """The text, cut to the limit of names."""
    return protocol.fitted(plain(text), NAME_BYTES_MAX) or UNNAMED


def plain(text: str, *, kept: str = "") -> str:
    """Escape characters that control a terminal or the direction of text.

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


def without_middle(text: str, length: int) -> str:
    """The text; of one of more than ``length`` characters the beginning and the end, where errors
    that wrap others have their cause."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"


def last_lines(text: str) -> str:
    """The end of the text, cut to the limit of ``lastLines``."""
    return plain(text, kept="\n\t")[-LAST_LINES_LENGTH_MAX:]


def decimal(value: float | None, *, low: float = -math.inf) -> str | None:
    """A number as text that reads back as the same; None for one that is not finite or too low."""
    if value is None or not math.isfinite(value) or value < low:
        return None
    return repr(float(value))


def within(value: int | None, low: int, high: int) -> int | None:
    """The number; None if it is out of this closed range."""
    return value if value is not None and low <= value <= high else None


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
