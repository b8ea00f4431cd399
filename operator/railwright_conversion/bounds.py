"""Bounds of the fields of a status: the API server refuses a status that breaks its schema.

Text comes from pods, launchers and causes, and can have any content. It is cut here as bytes of
UTF-8, so that it fits wherever characters or bytes are counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from railwright import protocol
from railwright_api.training_job_status import LAST_LINES_LENGTH_MAX

SENTENCE_BYTES_MAX = 1024
"""The limit of events.k8s.io for a note, in bytes."""
NAME_BYTES_MAX = 1024
WORD_LENGTH_MAX = 128
UNNAMED = "Unknown"

MAGNITUDES = (1e-9, 1e9)
"""The closed range of a number that is not 0: sums and quotients of such are finite."""

ENTRIES = (8, 4, 2, 1, 0)
"""The bounds of a list, the next where the one before leaves an object too large."""


def sentence(text: str, *, end: str = "") -> str:
    """The text, cut to the limit of messages and notes, with this ``end`` in ASCII, which stays."""
    return protocol.fitted(plain(text), SENTENCE_BYTES_MAX - len(end)) + end


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


def non_negative(text: str) -> float:
    """A number that is not negative, from its text; within ``MAGNITUDES`` if it is not 0. Raises
    ValueError."""
    value = float(text)
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{text[:32]} is no finite number of 0 or more")
    low, high = MAGNITUDES
    return min(max(value, low), high) if value else 0.0


def within(value: int | None, low: int, high: int) -> int | None:
    """The number; None if it is out of this closed range."""
    return value if value is not None and low <= value <= high else None


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def stored_bytes(value: object) -> int:
    """The size of a value as the API server stores it: Go writes <, > and & with six bytes each."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + 5 * sum(map(text.count, "<>&"))


def shortened(
    status: Mapping[str, Any], bytes_max: int, *, whole: Container[str]
) -> dict[str, Any]:
    """The status with fewer entries in its lists, at every depth, if it is larger than this. The
    lists of the names ``whole`` keep theirs, with shorter lists inside."""
    found = dict(status)
    for most in ENTRIES:
        if stored_bytes(found) <= bytes_max:
            break
        found = {
            name: [_short(each, most) for each in value]
            if value and name in whole
            else _short(value, most)
            for name, value in status.items()
        }
    return found


def _short(value: Any, most: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _short(each, most) for name, each in value.items()}
    return [_short(each, most) for each in value[:most]] if isinstance(value, list) else value
