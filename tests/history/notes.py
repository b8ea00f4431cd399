"""Notes that tests leave in the history itself, so that they stand between two revisions.

A test that does what no guarantee covers (an admin deletes the ledger, etcd is restored) says so
around it, and names the invariants that it breaks. Anything else that breaks meanwhile is found all
the same; so is a declaration that nothing needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from railwright_testbed import ControlPlane, history

BEGIN, END, REST = "begin", "end", "rest"


@contextmanager
def outside_guarantees(plane: ControlPlane, *invariants: str, because: str) -> Iterator[None]:
    """What is done within may break these invariants, such as I14. It must break one of them."""
    note = {"invariants": list(invariants), "because": because}
    history.mark(plane.etcd, {"note": BEGIN, **note})
    try:
        yield
    finally:
        history.mark(plane.etcd, {"note": END, **note})


def rest_begins(plane: ControlPlane) -> None:
    """From here on nobody asks anything of the operator: it must write nothing but its Lease."""
    history.mark(plane.etcd, {"note": REST})


class Declared:
    """What is declared at the revision that is being read, and what needed it."""

    def __init__(self) -> None:
        self._open: list[Mapping[str, Any]] = []
        self._used: list[str] = []
        self.resting = False

    def read(self, note: Mapping[str, Any]) -> str | None:
        """Take in a note; the finding, if it ends a declaration that nothing needed."""
        unneeded = None
        if note.get("note") == BEGIN:
            self._open.append(note)
        elif note.get("note") == END:
            because = note["because"]
            self._open = [each for each in self._open if each["because"] != because]
            if because not in self._used:
                unneeded = f"declared: {because!r} broke none of {note['invariants']}: remove it"
        elif note.get("note") == REST:
            self.resting = True
        return unneeded

    def covers(self, finding: str) -> bool:
        """Whether a test has declared that this invariant may break now."""
        number = finding.partition(":")[0]
        found = [each["because"] for each in self._open if number in each["invariants"]]
        self._used += found
        return bool(found)
