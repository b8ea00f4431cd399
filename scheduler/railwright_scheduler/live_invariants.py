"""The invariants that a leader checks while it runs.

I1   the attempts of jobs that are bound hold no more of a node than it has
I2   a gang is bound completely, or it is in the ledger
I3   live pods of two attempts of one job: the older attempt is aborting, its pods are going

I1 is checked by each scheduling cycle before it decides: a node on which pods of jobs violate it
takes no new pod, and these jobs get a condition. Pods of no job do not count. I2 and I3 are held
against fresh lists, every ten minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from railwright_scheduler import usage
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import AttemptKey, EntryState, Ledger
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.model import text
from railwright_scheduler.model.snapshot import Amounts, Node

DOUBLE_BOOKING = "I1"


@dataclass(frozen=True, slots=True)
class DoubleBooking:
    """Pods of ``attempts`` (job UID and number) hold ``held`` of a resource on a node that has
    ``available`` for them."""

    node: str
    resource: str
    held: int
    available: int
    attempts: tuple[AttemptKey, ...]

    @property
    def message(self) -> str:
        """The double booking as a sentence, without the jobs."""
        held, available = text.compared(self.resource, self.held, self.available)
        return (
            f"pods of {len(self.attempts)} attempts hold {held} {self.resource} on "
            f"{self.node}, which has {available}; nothing more is placed there"
        )


def excess(available: Amounts, held: Amounts) -> Iterator[tuple[str, int, int]]:
    """The resources of which more is held than there is: name, held amount, available amount."""
    for resource, amount in held.items():
        if amount > available.get(resource, 0):
            yield resource, amount, available.get(resource, 0)


def double_bookings(
    nodes: Iterable[Node], attempts: Mapping[AttemptKey, ObservedAttempt], ledger: Ledger
) -> tuple[DoubleBooking, ...]:
    """The double bookings of these nodes, sorted by node and resource.

    Attempts of the ledger do not count. A binding that is on its way when a node loses devices
    makes no double booking of it: such an attempt is withdrawn (``revalidation``).
    """
    exceeded = {node.name: node for node in nodes if _is_exceeded(node)}
    held: dict[str, dict[AttemptKey, dict[str, int]]] = {name: {} for name in exceeded}
    in_flight = {entry.key for entry in ledger.entries} if exceeded else set()
    for key, seen in attempts.items() if exceeded else ():
        for pod in seen.pods if key not in in_flight else ():
            if pod.node in held and not pod.terminal:
                usage.add_amounts(held[pod.node].setdefault(key, {}), [pod.amounts])
    found = [booking for name, node in exceeded.items() for booking in _bookings(node, held[name])]
    return tuple(sorted(found, key=lambda booking: (booking.node, booking.resource)))


def _is_exceeded(node: Node) -> bool:
    """Whether pods, of jobs or not, hold more than there is: a plain loop, run for every node."""
    allocatable = node.allocatable
    for resource, amount in node.used.items():  # noqa: SIM110  a generator takes half as long again
        if amount > allocatable.get(resource, 0):
            return True
    return False


def _bookings(node: Node, held: Mapping[AttemptKey, Amounts]) -> Iterator[DoubleBooking]:
    total = usage.add_amounts({}, held.values())
    for resource, amount, has in excess({**node.allocatable, **node.promised}, total):
        attempts = sorted(key for key, holds in held.items() if holds.get(resource, 0))
        if len(attempts) > 1:
            yield DoubleBooking(node.name, resource, amount, has, tuple(attempts))


def gang_findings(
    pods: Mapping[AttemptKey, Iterable[Pod]], ledger: Ledger, *, whole: Collection[AttemptKey]
) -> Iterator[str]:
    """What breaks I2 or I3 in one revision of our pods, by attempt, and the ledger. ``whole`` are
    the attempts that were completely bound at one time."""
    states = {entry.key: entry.state for entry in ledger.entries}
    live = [(key, pod) for key, its in pods.items() for pod in its if pod.node and not pod.terminal]
    newest: dict[str, int] = {}
    for (job_uid, attempt), _ in live:
        newest[job_uid] = max(newest.get(job_uid, 0), attempt)
    for key, pod in live:
        job_uid, attempt = key
        if key not in states and key not in whole:
            yield f"I2: {pod.name} runs, its gang was never whole and is not in the ledger"
        if attempt < newest[job_uid]:
            if states.get(key) is not EntryState.ABORTING:
                yield f"I3: {pod.name} lives beside a newer attempt and is not being aborted"
            elif not pod.deleting:
                yield f"I3: {pod.name} lives beside a newer attempt and was not told to go"
