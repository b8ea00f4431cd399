"""Invariant I1: the attempts of jobs hold no more of a node than it has.

The simulator checks it after every write, and each scheduling cycle before it decides: a node on
which pods of jobs violate the invariant takes no new pod, and these jobs get a condition. Pods of
no job do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from railwright_scheduler.model.snapshot import Amounts, Node

INVARIANT = "I1"


@dataclass(frozen=True, slots=True)
class DoubleBooking:
    """Pods of ``attempts`` (job UID and number) hold ``held`` of a resource on a node that has
    ``available`` for them."""

    node: str
    resource: str
    held: int
    available: int
    attempts: tuple[tuple[str, int], ...]

    @property
    def message(self) -> str:
        """What is wrong, without the jobs."""
        return (
            f"pods of {len(self.attempts)} attempts hold {self.held} {self.resource} on "
            f"{self.node}, which has {self.available}; nothing more is placed there"
        )


def excess(available: Amounts, held: Amounts) -> Iterator[tuple[str, int, int]]:
    """The resources of which more is held than there is: name, held amount, available amount."""
    for resource, amount in held.items():
        if amount > available.get(resource, 0):
            yield resource, amount, available.get(resource, 0)


def find(nodes: Iterable[Node]) -> tuple[DoubleBooking, ...]:
    """The double bookings of these nodes, sorted by node and resource."""
    found = [
        booking
        for node in nodes
        if len(node.holders) > 1 and _is_exceeded(node)
        for booking in _bookings(node)
    ]
    return tuple(sorted(found, key=lambda booking: (booking.node, booking.resource)))


def _is_exceeded(node: Node) -> bool:
    """Whether pods, of jobs or not, hold more than there is: a plain loop, run for every node."""
    allocatable = node.allocatable
    for resource, amount in node.used.items():  # noqa: SIM110  a generator takes half as long again
        if amount > allocatable.get(resource, 0):
            return True
    return False


def _bookings(node: Node) -> Iterator[DoubleBooking]:
    available = {**node.allocatable, **node.promised}
    held = {name: amount - node.foreign.get(name, 0) for name, amount in node.used.items()}
    for resource, amount, has in excess(available, held):
        attempts = sorted(key for key, holds in node.holders.items() if holds.get(resource, 0))
        if len(attempts) > 1:
            yield DoubleBooking(node.name, resource, amount, has, tuple(attempts))
