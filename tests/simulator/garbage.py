"""The garbage collector: which objects have lost all of their owners."""

from __future__ import annotations

from typing import Any

from simulator.resources import Resource
from simulator.stored_objects import Change

Json = dict[str, Any]
Place = tuple[Resource, str]
"""A resource, and the key of an object of it."""


class OwnerIndex:
    """The objects that name each owner by UID; ``record`` must see every change of the store."""

    def __init__(self) -> None:
        self._existing: set[str] = set()
        self._dependents: dict[str, dict[Place, None]] = {}
        self._candidates: dict[Place, None] = {}

    def __repr__(self) -> str:
        return f"<OwnerIndex owners={len(self._dependents)} candidates={len(self._candidates)}>"

    def record(self, change: Change) -> None:
        """Take in a change."""
        found, uid = change.object, change.object.uid
        place = (found.resource, change.key)
        before = _owners(change.before.object) if change.before is not None else ()
        owners = _owners(found.object) if change.type != "DELETED" else ()
        for owner in before:
            if owner not in owners and owner in self._dependents:
                self._dependents[owner].pop(place, None)
        for owner in owners:
            self._dependents.setdefault(owner, {})[place] = None
            if owner not in self._existing:
                self._candidates[place] = None
        if change.type != "DELETED":
            self._existing.add(uid)
        else:
            self._existing.discard(uid)
            self._candidates |= self._dependents.pop(uid, {})

    def take_candidates(self) -> list[Place]:
        """The objects that lost an owner since the last call, in order."""
        candidates = [*self._candidates]
        self._candidates.clear()
        return candidates

    def is_garbage(self, found: Json) -> bool:
        """Whether an object has owners, and none of them exists."""
        owners = _owners(found)
        return bool(owners) and self._existing.isdisjoint(owners)


def _owners(found: Json) -> tuple[str, ...]:
    return tuple(owner["uid"] for owner in found["metadata"].get("ownerReferences", ()))
