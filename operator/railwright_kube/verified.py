"""Compare the cache of an informer with a fresh list, and correct the cache.

A watch that loses an event reports nothing, and its informer lists again only every half hour. The
leader calls ``verify`` more often (``Verification``). A list that the informer makes meanwhile is
newer, so it replaces the verification.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Generic

from railwright_kube.pages import Listing
from railwright_kube.projections import ApiObject, Identity
from railwright_kube.reflector import R, Reflector

REACH_S = 90.0
"""Within this time the watch passes the version of the list, as bookmarks are sent each minute."""

POLL_S = 0.5

DIFFERING_MAX = 1_000
"""Objects that are compared a second time. More differ at first only if thousands change at once;
the others wait for the next verification."""

DROPPED_MAX = 20_000
"""Deletions during a verification. More are not remembered, and the verification corrects
nothing."""


class VerifiedReflector(Reflector[R], Generic[R]):
    """An informer that can be verified while it watches."""

    _dropped: set[str] | None = None
    """UIDs of objects deleted during a verification, cached or not. None outside of one, and in one
    that may correct nothing: the informer listed again, or there were too many deletions."""

    async def verify(self) -> list[str]:
        """Correct the cache; return the differences from a fresh list, a sentence each.

        An event that is still on its way is no difference: objects that differ are compared again
        once the watch has passed the version of the list. Empty if the informer listed again
        meanwhile. Raises RequestFailed, and TimeoutError if the watch does not pass the version.
        """
        self._dropped = set()
        try:
            listing = Listing()
            differing = await self._compare(listing)
            await self._reach(listing.version)
            if self._is_void():
                return []
            ghosts = self._missing_from(listing)
            for held in ghosts:
                self._put(held, None)
            wrong = [found.metadata.name for found in differing if self._correct(found)]
        finally:
            self._dropped = None
        missing = [f"{held!r:.200} was deleted and is in the copy" for held in ghosts]
        return missing + [f"{name} differs from the copy or is missing there" for name in wrong]

    def _is_void(self) -> bool:
        """Whether the verification may correct nothing."""
        return self._dropped is None

    async def _reach(self, version: int) -> None:
        """Return once the watch has passed this version; raises TimeoutError."""
        for _ in range(int(REACH_S / POLL_S)):
            if self._version is not None and self._version >= version:
                return
            await asyncio.sleep(POLL_S)
        raise TimeoutError(f"{self!r} did not reach version {version}")

    async def _compare(self, listing: Listing) -> list[ApiObject]:
        """The listed objects that differ from the cache."""
        differing: list[ApiObject] = []
        async with contextlib.aclosing(self._list(listing)) as objects:
            async for found in objects:
                if len(differing) < DIFFERING_MAX and self._right(found) is not None:
                    differing.append(found)
        return differing

    def _right(self, found: ApiObject) -> R | None:
        """The record of a listed object; None if the cache has it, or a newer one."""
        uid, version = found.metadata.uid, int(found.metadata.resource_version)
        held = self._records.get(uid)
        if uid in (self._dropped or ()) or (held is not None and held.rv > version):
            return None
        record = self._record(found)
        return record if held is None or held.rv < version or held != record else None

    def _correct(self, found: ApiObject) -> bool:
        """Store the listed object in the cache if it still differs; return whether it did."""
        record = self._right(found)
        if record is not None:
            self._put(self._records.get(record.uid), record)
        return record is not None

    async def _relist(self) -> None:
        await super()._relist()
        self._dropped = None

    def _drop(self, metadata: Identity) -> int:
        if self._dropped is not None:
            self._dropped.add(metadata.uid)
            if len(self._dropped) > DROPPED_MAX:
                self._dropped = None
        return super()._drop(metadata)
