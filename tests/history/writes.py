"""What our processes asked of the API server, by the server's own account of requests."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_testbed import audit
from railwright_testbed.audit import Request
from railwright_testbed.history import REGISTRY

WRITES = ("create", "update", "patch", "delete")
WRITES_A_POD = 3
"""Create, bind, delete."""

OURS = {audit.OPERATOR: "the operator asks", audit.CONTROLLERS: "the controllers ask"}

PodKey = str


@dataclass(frozen=True, slots=True)
class Writes:
    """``deletes`` are the operator's deletes of pods that landed, by the pod's key and the revision
    they made; ``of_pods`` counts what it did to the pods under each key."""

    deletes: set[tuple[PodKey, int]]
    of_pods: dict[PodKey, int]


def writes(requests: Iterable[Request]) -> Writes:
    """Sort out who did what to pods.

    A delete of what is being deleted changes nothing and answers with a revision before: where
    another asked for the same revision, it was not the operator's, nor where that revision did
    anything else. One that repeats its own, because the answer was lost, is one write.
    """
    own: set[tuple[PodKey, int]] = set()
    others: set[tuple[PodKey, int]] = set()
    made: collections.Counter[PodKey] = collections.Counter()
    for request in requests:
        if request.resource != "pods" or not request.landed:
            continue
        key = f"{REGISTRY}pods/{request.namespace}/{request.name}"
        if request.verb == "delete":
            if request.revision is not None:
                theirs = request.user != audit.OPERATOR
                (others if theirs else own).add((key, request.revision))
        elif request.verb == "create":
            made[key] += 1
    made.update(key for key, _ in own - others)
    return Writes(own - others, dict(made))


def too_many(done: Writes, attempts_at: Mapping[PodKey, Collection[AttemptKey]]) -> Iterator[str]:
    """I20: more was done to the pods under one key than the attempts that had it may.

    A key names one rank of one attempt of a job; jobs of one name have it one after the other.
    """
    for key, count in done.of_pods.items():
        attempts = len(attempts_at.get(key, ()))
        if count > WRITES_A_POD * attempts:
            yield f"I20: {key} was written {count} times for {attempts} attempts"


def after(requests: Iterable[Request], moment: datetime) -> Iterator[str]:
    """I20: what our processes wrote since everything is at rest, their Leases left out."""
    for request in requests:
        if (
            (who := OURS.get(request.user)) is not None
            and request.verb in WRITES
            and request.resource != "leases"
            and datetime.fromisoformat(request.received) > moment
        ):
            yield f"I20: at rest {who} to {request.verb} {request.resource}"
