"""Words from anywhere, as they go into statuses and events."""

from __future__ import annotations

import pytest

from railwright_conversion import bounds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.5 µ — naïve 東京", "loss 0.5 µ — naïve 東京"),
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("done\r\nFake: line", r"done\r\nFake: line"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("a\x00b\x9bc\u2028d", r"a\x00b\x9bc\u2028d"),
        ("\ud800", r"\ud800"),
    ],
    ids=["plain", "terminal", "lines", "direction", "others", "half a character"],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert bounds.sentence(text) == shown


def test_last_lines_keep_their_lines_and_nothing_else() -> None:
    assert bounds.last_lines("one\n\ttwo\x1b[1m\r\n") == "one\n\ttwo\\x1b[1m\\r\n"


def test_absent_list_stays_absent_when_others_are_shortened() -> None:
    status = {"sources": None, "slow": ["x" * 100] * 20}
    assert bounds.shortened(status, 500, whole={"sources"}) == {
        "sources": None,
        "slow": ["x" * 100] * 4,
    }
