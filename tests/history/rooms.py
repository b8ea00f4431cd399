"""What each node has for our gangs, as far as anybody could have known.

A node that shrinks, and a pod that others put on it, are not our fault when we could not know of
them yet. So for so long as news takes, what was there counts as there; after that, a binding or a
commit that gives away what is gone is ours to answer for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from history.amounts import Amounts

NEWS_S = 5
"""How long a change of a node, or the pod of another, may take to be acted on."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A pod of others: what it takes of its node, since when."""

    node: str
    takes: Amounts
    since_s: int


@dataclass(slots=True)
class _Node:
    has: Amounts = field(default_factory=dict)
    had: list[tuple[int, Amounts]] = field(default_factory=list)
    """What it had, with the second in which that changed."""


class Rooms:
    """All nodes, and the pods of others on them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._guests: dict[str, Guest] = {}
        self._guests_of: dict[str, set[str]] = {}

    def put_node(self, name: str, has: Amounts | None, *, now_s: int) -> None:
        """A node has this much from now on; None when it is gone."""
        node = self._nodes.setdefault(name, _Node())
        if (has or {}) != node.has:
            recent = [(at_s, had) for at_s, had in node.had if now_s - at_s <= NEWS_S]
            node.had = [*recent, (now_s, node.has)]
            node.has = has or {}

    def put_guest(self, key: str, guest: Guest | None) -> None:
        """A pod of others, by its key, takes this; None when it takes nothing any more."""
        before = self._guests.pop(key, None)
        if before is not None:
            self._guests_of[before.node].discard(key)
        if guest is not None:
            same = before is not None and before.node == guest.node
            self._guests[key] = before if before is not None and same else guest
            self._guests_of.setdefault(guest.node, set()).add(key)

    def guest(self, key: str) -> Guest | None:
        """What the pod of others with this key takes; None if that is nothing."""
        return self._guests.get(key)

    def has(self, name: str) -> Amounts:
        """What this node has now for all pods; nothing of one that is unknown."""
        return dict(self._nodes.get(name, _Node()).has)

    def left(self, name: str) -> Amounts:
        """What this node has now beside the pods of others; nothing of one that is unknown."""
        left = self.has(name)
        for key in self._guests_of.get(name, ()):
            for resource, amount in self._guests[key].takes.items():
                left[resource] = left.get(resource, 0) - amount
        return left

    def available(self, name: str, *, now_s: int) -> Amounts:
        """The most that our gangs may be given of this node now; nothing of one that is unknown."""
        node = self._nodes.get(name, _Node())
        most = dict(node.has)
        for at_s, had in node.had:
            if now_s - at_s <= NEWS_S:
                most = {key: max(most.get(key, 0), had.get(key, 0)) for key in {**most, **had}}
        for key in self._guests_of.get(name, ()):
            guest = self._guests[key]
            if now_s - guest.since_s > NEWS_S:
                for resource, amount in guest.takes.items():
                    most[resource] = most.get(resource, 0) - amount
        return most
