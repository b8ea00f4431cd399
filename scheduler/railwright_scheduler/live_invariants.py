"""Invariants I2 and I3, which the leader holds fresh lists against.

I2   a gang is bound completely, or it is in the ledger
I3   live pods of two attempts of one job: the older attempt is aborting, its pods are going
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from railwright_scheduler.attempt.ledger import AttemptKey, EntryState, Ledger
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.model.snapshot import Amounts


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod as it is stored. ``node`` is empty while it is not bound."""

    name: str
    uid: str
    job_uid: str
    attempt: int
    node_rank: int
    amounts: Amounts
    node: str = ""
    phase: PodState = PodState.PENDING
    exit_code: int | None = None
    deleting: bool = False

    @property
    def key(self) -> AttemptKey:
        """The attempt it belongs to."""
        return self.job_uid, self.attempt

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""
        return self.phase in (PodState.SUCCEEDED, PodState.FAILED)

    @property
    def live(self) -> bool:
        """Whether it takes its amounts from a node; one that is being deleted still does."""
        return self.node != "" and not self.terminal


def findings(
    pods: Collection[PodFact], ledger: Ledger, *, whole: Collection[AttemptKey]
) -> Iterator[str]:
    """What breaks I2 or I3 in one revision of our pods and the ledger. ``whole`` are the attempts
    that were completely bound at one time."""
    yield from _whole_gangs(pods, ledger, whole)
    yield from _one_attempt(pods, ledger)


def _whole_gangs(
    pods: Collection[PodFact], ledger: Ledger, whole: Collection[AttemptKey]
) -> Iterator[str]:
    in_flight = {entry.key for entry in ledger.entries}
    for pod in pods:
        if pod.live and pod.key not in in_flight and pod.key not in whole:
            yield f"I2: {pod.name} runs, its gang was never whole and is not in the ledger"


def _one_attempt(pods: Collection[PodFact], ledger: Ledger) -> Iterator[str]:
    newest: dict[str, int] = {}
    for pod in pods:
        if pod.live:
            newest[pod.job_uid] = max(newest.get(pod.job_uid, 0), pod.attempt)
    aborting = {e.key for e in ledger.entries if e.state is EntryState.ABORTING}
    for pod in pods:
        if pod.live and pod.attempt < newest[pod.job_uid]:
            if pod.key not in aborting:
                yield f"I3: {pod.name} lives beside a newer attempt and is not being aborted"
            elif not pod.deleting:
                yield f"I3: {pod.name} lives beside a newer attempt and was not told to go"
