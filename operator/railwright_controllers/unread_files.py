"""Files that were invalid when the controllers started, and still are.

The controllers have none of their content, and what was published from it must not be lost: all
that was published stays until they are valid, or gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from railwright_controllers.file_reads import FileRead
from railwright_topology.fabric import Fabric
from railwright_topology.sources import formats


class UnreadFiles:
    """The files of one process. A source that was published before it started is missing until it
    is in an assembled fabric for the first time; what goes later is gone."""

    def __init__(self) -> None:
        self._unread: frozenset[str] | None = None
        self._missing: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<UnreadFiles {len(self._unread or ())} missing={len(self._missing)}>"

    def started(self, published: Iterable[str]) -> None:
        """Take in the sources that were published before this process started."""
        self._missing = frozenset(published)

    def read(self, files: Iterable[FileRead]) -> None:
        """Take in the first read of all files."""
        if self._unread is None:
            self._unread = frozenset(
                str(each.file)
                for each in files
                if each.problem and formats.is_known(each.file.name)
            )

    def assembled(self, fabric: Fabric, files: Iterable[FileRead]) -> None:
        """Take in a fabric, and the files that it was assembled from."""
        there = {each.source for each in fabric.source_reports}
        self._missing = self._missing.difference(there, *fabric.fact_sources.values())
        invalid = {str(each.file) for each in files if each.problem and not each.facts}
        self._unread = (self._unread or frozenset()) & invalid

    def among(self, files: Iterable[FileRead]) -> tuple[str, ...]:
        """Those of these files that are unread, if a source that was published from their ConfigMap
        is missing."""
        return tuple(
            str(each.file)
            for each in files
            if str(each.file) in (self._unread or ())
            and any(source.startswith(f"{each.file.place}/") for source in self._missing)
        )
