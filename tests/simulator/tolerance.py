"""What nodes have for our pods, in a cluster whose operator learns of changes late.

A node shrinks, or a pod of others is bound, and what was given away exceeds what is left. The API
server does not check capacity, so this cannot be prevented. What was given away before the change,
or by a leader that could not know of it yet, is tolerated until it is given back; everything else
is a double booking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from history import invariants
from history.amounts import Amounts
from history.invariants import Facts
from history.rooms import Guest, Rooms


class ToleratedRooms(Rooms):
    """The nodes, with what is tolerated on each beyond what it has. ``facts`` are those about some
    nodes now, ``version`` the newest of the API server. ``known_version`` is up to where who writes
    now can know the nodes; None while others write."""

    def __init__(
        self, facts: Callable[[Collection[str]], Facts], *, version: Callable[[], int]
    ) -> None:
        super().__init__()
        self._facts = facts
        self._version = version
        self._tolerated: dict[str, Amounts] = {}
        self._changes: dict[str, list[tuple[int, Amounts, Amounts]]] = {}
        self.known_version: int | None = None

    def put_node(self, name: str, has: Amounts | None, *, now_s: int) -> None:
        """A node has this much from now on; what is given away stays so."""
        super().put_node(name, has, now_s=now_s)
        self._changed(name)

    def put_guest(self, key: str, guest: Guest | None) -> None:
        """A pod of others takes this, or nothing any more; what is given away stays so."""
        before = self.guest(key)
        super().put_guest(key, guest)
        for node in sorted({each.node for each in (before, guest) if each is not None}):
            self._changed(node)

    def available(self, name: str, *, now_s: int) -> Amounts:
        """The most that may be given away of this node now."""
        has, facts = self.left(name), self._facts([name])
        given = invariants.given_away(facts, late=True).get(name, {})
        if not _exceeds(given, has):
            self._tolerated.pop(name, None)
            return has
        decided = invariants.given_away(facts).get(name, {})
        if self.known_version is not None and not _exceeds(decided, self._seen(name)):
            self._raise(name, given)
        held = self._tolerated.get(name, {})
        self._tolerated[name] = held = {
            each: min(amount, given.get(each, 0)) for each, amount in held.items()
        }
        return _most(has, held)

    def _seen(self, name: str) -> Amounts:
        """The most that the node had since the version that the writer can know. It may know the
        node of one version and the pods on it of a later one."""
        changes = self._changes.get(name, [])
        untils = [*(version for version, _, _ in changes[1:]), self._version()]
        since = [
            (had, taken)
            for (_, had, taken), until in zip(changes, untils, strict=True)
            if self.known_version is not None and until > self.known_version
        ]
        most, least = self.has(name), _difference(self.has(name), self.left(name))
        for had, taken in since:
            most = _most(most, had)
            least = {each: min(amount, taken.get(each, 0)) for each, amount in least.items()}
        return _difference(most, least)

    def _changed(self, name: str) -> None:
        has, left = self.has(name), self.left(name)
        change = self._version(), has, _difference(has, left)
        self._changes.setdefault(name, []).append(change)
        given = invariants.given_away(self._facts([name]), late=True).get(name, {})
        if _exceeds(given, left):
            self._raise(name, given)

    def _raise(self, name: str, given: Mapping[str, int]) -> None:
        self._tolerated[name] = _most(self._tolerated.get(name, {}), given)


def _exceeds(given: Mapping[str, int], has: Mapping[str, int]) -> bool:
    return any(amount > has.get(name, 0) for name, amount in given.items())


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _difference(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: one.get(name, 0) - other.get(name, 0) for name in {**one, **other}}
