"""What nodes have for our pods, in a cluster whose operator learns of changes late.

A node shrinks, or a pod of others is bound, and what was given away exceeds what is left. The API
server does not check capacity, so this cannot be prevented. What was given away before the change,
or by a leader whose caches did not have it yet, is tolerated until it is given back; everything
else is a double booking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from history.amounts import Amounts
from history.rooms import Guest, Rooms
from railwright_scheduler import invariants
from railwright_scheduler.invariants import Facts

Given = Mapping[str, Mapping[str, int]]


class ToleratedRooms(Rooms):
    """The nodes, with what is tolerated on each beyond what it has. ``facts`` are those about some
    nodes now; ``seen`` is what nodes have by the caches of who writes now."""

    def __init__(self, facts: Callable[[Collection[str]], Facts]) -> None:
        super().__init__()
        self._facts = facts
        self._tolerated: dict[str, Amounts] = {}
        self.seen: Given = {}

    def put_node(self, name: str, has: Amounts | None, *, now_s: int) -> None:
        """A node has this much from now on; what is given away stays so."""
        super().put_node(name, has, now_s=now_s)
        self._tolerate(name)

    def put_guest(self, key: str, guest: Guest | None) -> None:
        """A pod of others takes this; what is given away stays so."""
        super().put_guest(key, guest)
        if guest is not None:
            self._tolerate(guest.node)

    def available(self, name: str, *, now_s: int) -> Amounts:
        """The most that may be given away of this node now."""
        has, facts = self.left(name), self._facts([name])
        given = invariants.given_away(facts, late=True).get(name, {})
        if not _exceeds(given, has):
            self._tolerated.pop(name, None)
            return has
        decided = invariants.given_away(facts).get(name, {})
        if name in self.seen and not _exceeds(decided, self.seen[name]):
            self._raise(name, given)
        held = self._tolerated.get(name, {})
        self._tolerated[name] = held = {
            each: min(amount, given.get(each, 0)) for each, amount in held.items()
        }
        return {each: max(has.get(each, 0), held.get(each, 0)) for each in {**has, **held}}

    def _tolerate(self, name: str) -> None:
        given = invariants.given_away(self._facts([name]), late=True).get(name, {})
        if _exceeds(given, self.left(name)):
            self._raise(name, given)

    def _raise(self, name: str, given: Mapping[str, int]) -> None:
        held = self._tolerated.get(name, {})
        self._tolerated[name] = {
            each: max(held.get(each, 0), given.get(each, 0)) for each in {**held, **given}
        }


def _exceeds(given: Mapping[str, int], has: Mapping[str, int]) -> bool:
    return any(amount > has.get(name, 0) for name, amount in given.items())
