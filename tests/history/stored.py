"""Stored objects read as facts. Ours is what the operator made, whatever its labels say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from history import amounts
from railwright_api import names
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryRole, EntryState, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, PreRunRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.model.snapshot import Purpose

Json = Mapping[str, Any]

OPERATOR = "railwright"
"""The manager that the API server derives from the operator's User-Agent."""


@dataclass(frozen=True, slots=True)
class Job:
    """A TrainingJob. ``comparable_status`` is its ``status`` without times."""

    uid: str
    name: str
    generation: int
    observed: int
    deleting: bool
    policy: FailurePolicy
    deadline_s: int | None
    record: JobRecord
    status: Json
    comparable_status: object


@dataclass(frozen=True, slots=True)
class PodFact(Pod):
    """A pod as it is stored."""

    job_uid: str
    attempt: int
    phase: PodState
    exit_code: int | None

    @property
    def key(self) -> AttemptKey:
        """The attempt it belongs to."""
        return self.job_uid, self.attempt

    @property
    def live(self) -> bool:
        """Whether it takes its amounts from a node; one that is being deleted still does."""
        return self.node != "" and not self.terminal


def is_ours(value: Json) -> bool:
    """Whether the operator made this object. To be asked of its first version."""
    entries = value["metadata"].get("managedFields", ())
    return any(entry["manager"] == OPERATOR and "subresource" not in entry for entry in entries)


def pod(value: Json, *, born: PodFact | None) -> PodFact:
    """One of our pods. Who it is, is fixed by its first version, ``born``."""
    metadata, spec, status = value["metadata"], value["spec"], value["status"]
    labels = metadata["labels"]
    ended = [each["state"].get("terminated") for each in status.get("containerStatuses", ())[:1]]
    phase = PodState(status["phase"])
    return PodFact(
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=born.job_uid if born else labels[names.LABEL_JOB_UID],
        attempt=born.attempt if born else int(labels[names.LABEL_ATTEMPT]),
        node_rank=born.node_rank if born else int(labels[names.LABEL_NODE_RANK]),
        amounts=born.amounts if born else amounts.of_pod(spec),
        node=spec.get("nodeName", ""),
        phase=phase,
        terminal=phase in (PodState.SUCCEEDED, PodState.FAILED),
        exit_code=ended[0]["exitCode"] if ended and ended[0] else None,
        deleting="deletionTimestamp" in metadata,
    )


def job(value: Json) -> Job:
    """A job. One without a status has the record of one that was never looked at."""
    metadata, spec, status = value["metadata"], value["spec"], value.get("status", {})
    policy, started = spec["failurePolicy"], status.get("startedAt")
    last = status.get("lastTermination")
    return Job(
        uid=metadata["uid"],
        name=f"{metadata['namespace']}/{metadata['name']}",
        generation=metadata["generation"],
        observed=status.get("observedGeneration", 0),
        deleting="deletionTimestamp" in metadata,
        policy=FailurePolicy(policy["backoffLimit"], policy["windowSeconds"]),
        deadline_s=spec.get("activeDeadlineSeconds"),
        record=JobRecord(
            phase=Phase(status.get("phase", Phase.QUEUED)),
            attempt=status.get("attempt", 0),
            ended=status.get("endedAttempt", 0),
            restarts=status.get("restarts", 0),
            failures=status.get("failures", 0),
            start_failures=status.get("startFailures", 0),
            hangs=status.get("hangs", 0),
            last_termination=None if last is None else _cause({**last, "code": last["cause"]}),
            checkpoints=points(status.get("checkpoints", ())),
            pre_run=_pre_run(status.get("preRun")),
            started_s=None if started is None else time_s(started),
        ),
        status=status,
        comparable_status=_without_times(status),
    )


def points(stored: Iterable[Json]) -> tuple[ResumePoint, ...]:
    """The resume points in a status or a Placement."""
    return tuple(ResumePoint(each["group"], each["attempt"], each["step"]) for each in stored)


def ledger(value: Json) -> Ledger:
    """The ledger; AssertionError when it holds what no ledger may."""
    spec = value["spec"]
    return Ledger(
        epoch=spec["epoch"],
        incarnation=spec["incarnation"],
        holder=spec["holder"],
        entries=tuple(map(_entry, spec.get("entries", ()))),
    )


def owners(value: Json) -> tuple[str, ...]:
    """The UIDs of those an object belongs to."""
    return tuple(owner["uid"] for owner in value["metadata"].get("ownerReferences", ()))


def fabric_status(value: Json | None) -> dict[str, object]:
    """The status of the Fabric; its problems of agents stand in ``agents``, beside the counts."""
    status = {} if value is None else dict(value.get("status", {}))
    problems = status.get("problems", ())
    silent = [each for each in problems if each["key"] == "agents"]
    others = [each for each in problems if each["key"] != "agents"]
    count = status.get("problemCount", 0) - len(silent)
    return {
        **status,
        "agents": (status.get("agents"), silent),
        "problems": others,
        "problemCount": count,
    }


def writers(value: Json) -> str:
    """Who wrote last of those who leave their names; bindings and deletes leave none."""
    entries = value["metadata"].get("managedFields", ())
    newest = max((entry["time"] for entry in entries), default="")
    return ", ".join(sorted({each["manager"] for each in entries if each["time"] == newest}))


def stamp_s(value: Json) -> int:
    """The latest second that this version is known to have been written in or after.

    The API server dates what it makes, who set what, and bindings; a holder dates its Lease.
    """
    metadata = value["metadata"]
    texts = [metadata.get("creationTimestamp"), value.get("spec", {}).get("renewTime")]
    texts += [entry.get("time") for entry in metadata.get("managedFields", ())]
    texts += [
        condition["lastTransitionTime"]
        for condition in value.get("status", {}).get("conditions", ())
        if condition["type"] == "PodScheduled"
    ]
    return max((int(datetime.fromisoformat(text).timestamp()) for text in texts if text), default=0)


def _entry(raw: Json) -> Entry:
    cause, nodes = raw.get("cause"), node_names(raw["nodes"])
    return Entry(
        job_uid=raw["jobUID"],
        namespace=raw["namespace"],
        job_name=raw["jobName"],
        attempt=raw["attempt"],
        state=EntryState(raw["state"]),
        nodes=nodes,
        roles=tuple(
            EntryRole(role["name"], role["replicas"], dict(role.get("perPod", {})))
            for role in raw.get("roles", ())
        ),
        cause=None if cause is None else _cause(cause, nodes),
        purpose=Purpose(raw.get("purpose") or Purpose.TRAINING),
    )


def _pre_run(raw: Json | None) -> PreRunRecord | None:
    if raw is None:
        return None
    return PreRunRecord(raw["specHash"], raw["attempts"], raw.get("message", ""))


def _cause(raw: Json, nodes: Sequence[str] = ()) -> Cause:
    """A cause; in the ledger it names the lost of these nodes by their ranks."""
    at_s = time_s(raw["time"]) if "time" in raw else 0
    lost = tuple(nodes[rank] for rank in raw.get("lostNodeRanks", ()))
    return Cause(CauseCode(raw["code"]), raw.get("message", ""), nodes=lost, time_s=at_s)


def time_s(text: str) -> int:
    """A time in an object, in whole seconds since the epoch."""
    return int(datetime.fromisoformat(text).timestamp())


def node_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """The names of the nodes of an entry, in the order of ranks."""
    return tuple(name for pattern in patterns for name in _names(pattern))


def _names(pattern: str) -> Iterator[str]:
    """``a{b,c}d`` is abd and acd."""
    before, brace, rest = pattern.partition("{")
    middles, _, after = rest.partition("}")
    yield from (before + middle + after for middle in middles.split(",") if brace)
    if not brace:
        yield pattern


def _without_times(part: object) -> object:
    if isinstance(part, dict):
        kept = part.keys() - {"time", "lastTransitionTime"}
        return {key: _without_times(part[key]) for key in sorted(kept)}
    return [_without_times(each) for each in part] if isinstance(part, list) else part
