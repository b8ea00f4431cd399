"""What a violation is told with: the revisions around it, each in one line."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from datetime import UTC, datetime

BEFORE, AFTER = 8, 3


@dataclass(slots=True)
class Violation:
    """One broken invariant: its number and words, where it was seen, and what happened around."""

    finding: str
    revision: int
    key: str
    lines: list[str] = field(default_factory=list)

    @property
    def invariant(self) -> str:
        """Its number, such as I2."""
        return self.finding.partition(":")[0]

    def __str__(self) -> str:
        around = "".join(f"\n    {line}" for line in self.lines)
        return f"{self.finding}\n  at revision {self.revision}, {self.key}{around}"


class Trail:
    """The last lines, and the violations that still want the next ones. Each finding counts once:
    what is broken stays broken for many revisions."""

    def __init__(self) -> None:
        self._last: collections.deque[str] = collections.deque(maxlen=BEFORE)
        self._open: list[Violation] = []
        self._found: dict[str, Violation] = {}

    @property
    def violations(self) -> list[Violation]:
        """All of them, in the order in which they were found."""
        return list(self._found.values())

    def add_change(self, revision: int, now_s: int, what: str) -> None:
        """One change, before it is judged."""
        time = datetime.fromtimestamp(now_s, UTC).time()
        line = f"{revision} {time} {what}"
        self._last.append(line)
        for violation in self._open:
            violation.lines.append(line)
        self._open = [v for v in self._open if len(v.lines) < BEFORE + AFTER]

    def find(self, finding: str, *, revision: int, key: str) -> None:
        """An invariant is broken by the change told last."""
        if finding not in self._found:
            violation = Violation(finding, revision, key, list(self._last))
            self._found[finding] = violation
            self._open.append(violation)
