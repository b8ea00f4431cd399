"""Connections, the oldest first: where a pool is full, its oldest one gives way to the next."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


class Pool(Generic[M]):
    """One pool."""

    def __init__(self) -> None:
        self._members: dict[M, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[M]:
        return iter(self._members)

    def add(self, member: M, *, most: int) -> M | None:
        """Add a member. If there are ``most`` already, the oldest one leaves and is returned."""
        oldest = None
        if len(self._members) >= most:
            oldest = next(iter(self._members))
            del self._members[oldest]
        self._members[member] = None
        return oldest

    def discard(self, member: M) -> None:
        """Remove a member, if it is one."""
        self._members.pop(member, None)


class Pools(Generic[M]):
    """A pool for each name, as long as it has members."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool[M]] = {}

    def __iter__(self) -> Iterator[M]:
        return itertools.chain.from_iterable(self._pools.values())

    def add(self, name: str, member: M, *, most: int) -> M | None:
        """The same for the pool of this name."""
        return self._pools.setdefault(name, Pool()).add(member, most=most)

    def discard(self, name: str, member: M) -> None:
        """Remove a member of this pool, if it is one."""
        if (pool := self._pools.get(name)) is not None:
            pool.discard(member)
            if not pool:
                del self._pools[name]
