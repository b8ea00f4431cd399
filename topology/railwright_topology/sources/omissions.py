"""What a reader leaves out of a file: one sentence for each part, with its line and the rule.

A part that breaks a rule is lost, and nothing else is. Every reader of this package collects these
sentences and returns them as remarks beside what it read. A file of which nothing is left is
refused with the first of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from railwright_topology.wiring import WiringError

SENTENCES_MAX = 64
"""Remarks of one file; of more, the number is given."""


class Omissions:
    """The parts of one file that are left out."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._sentences: dict[str, WiringError] = {}

    def add(self, error: WiringError) -> None:
        """Record one part; the same sentence once."""
        sentence = f"line {error.line}: {error.rule}" if error.line else error.rule
        self._sentences.setdefault(sentence, error)

    def note(self, line: int, rule: str) -> None:
        """Record one part by its line and the rule; line 0 where a format keeps no lines."""
        self.add(WiringError(self.source, line, rule))

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """Leave out what raises WiringError inside, and record it."""
        try:
            yield
        except WiringError as error:
            self.add(error)

    @property
    def sentences(self) -> tuple[str, ...]:
        """In the order of the file; at most SENTENCES_MAX of them and how many more there are."""
        found = sorted(self._sentences, key=lambda sentence: self._sentences[sentence].line)
        if len(found) <= SENTENCES_MAX:
            return tuple(found)
        kept = found[: SENTENCES_MAX - 1]
        return (*kept, f"{len(found) - len(kept)} more parts are left out")

    def refuse(self, rule: str) -> WiringError:
        """The error of a file of which nothing is left: the first recorded one, else this rule."""
        first = min(self._sentences.values(), key=lambda error: error.line, default=None)
        return first or WiringError(self.source, 1, rule)
