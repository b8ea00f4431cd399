"""Connections, the oldest first: where a pool is full, its oldest one is closed for the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from prometheus_client import Counter


class Member(Protocol):
    """A connection."""

    def abort(self) -> None:
        """Close it at once; it leaves its pools."""


M = TypeVar("M", bound=Member)


class Pool(Generic[M]):
    """One pool. ``evictions`` counts the members that were closed for others."""

    def __init__(self, evictions: Counter) -> None:
        self._members: dict[M, None] = {}
        self._evictions = evictions

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[M]:
        return iter(self._members)

    def add(self, member: M, *, most: int) -> None:
        """Add a member; if there are ``most`` already, close the oldest one."""
        if len(self._members) >= most:
            self._evictions.inc()
            next(iter(self._members)).abort()
        self._members[member] = None

    def discard(self, member: M) -> None:
        """Remove a member, if it is one."""
        self._members.pop(member, None)


class Pools(Generic[M]):
    """A pool for each name, as long as it has members."""

    def __init__(self, evictions: Counter) -> None:
        self._pools: dict[str, Pool[M]] = {}
        self._evictions = evictions

    def __iter__(self) -> Iterator[M]:
        return itertools.chain.from_iterable(self._pools.values())

    def add(self, name: str, member: M, *, most: int) -> None:
        """Add a member to this pool; if it has ``most`` already, close its oldest one."""
        pool = self._pools.get(name) or Pool(self._evictions)
        pool.add(member, most=most)
        self._pools[name] = pool

    def discard(self, name: str, member: M) -> None:
        """Remove a member of this pool, if it is one."""
        if (pool := self._pools.get(name)) is not None:
            pool.discard(member)
            if not pool:
                del self._pools[name]
