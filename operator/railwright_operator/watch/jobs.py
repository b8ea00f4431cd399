"""TrainingJobs as last heard, ready for a turn.

The watch brings every change here; answers to our own writes are folded in too, and the newer of
two versions of an object is kept, so that a turn never works from a status older than its own
write.
"""

from __future__ import annotations

import collections
import datetime
import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from railwright import protocol
from railwright_api import names, schema
from railwright_api.quantities import QuantityError
from railwright_api.training_job import TrainingJob
from railwright_conversion import topology_constraints, workloads
from railwright_operator.kube import body_limits
from railwright_operator.watch import amounts, causes, job_objects, projections
from railwright_operator.watch.job_objects import JobObject
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, ResumePoint
from railwright_scheduler.model.decisions import TooLarge
from railwright_scheduler.model.snapshot import Amounts, Toleration, TopologyConstraints
from railwright_scheduler.model.workload import Workload

logger = logging.getLogger(__name__)

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CachedJob:
    """A TrainingJob as the watch last brought it: the object, its spec converted, and its record.

    ``job`` holds only the part of the pod template that pods are accounted for by.
    """

    uid: str
    object: JobObject
    job: TrainingJob
    per_node: Amounts
    selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    submitted_s: int
    workload: Workload | None
    constraints: TopologyConstraints
    spec_hash: str
    record: JobRecord

    @property
    def raw(self) -> Raw:
        """Its metadata and its status."""
        return self.object.raw

    @property
    def too_large(self) -> TooLarge | None:
        """Why no pod can be made of it; None if one can."""
        return self.object.too_large

    @property
    def profile(self) -> str:
        """What ranks of its attempts recorded; empty while they have not."""
        return _profile(self.raw)

    @property
    def ahead_of(self) -> str:
        """UID of the job whose pre-run this is; empty if it is none's."""
        metadata = self.raw["metadata"]
        if names.LABEL_PRE_RUN_OF not in metadata.get("labels", {}):
            return ""
        owners = metadata.get("ownerReferences", ())
        its = (owner["uid"] for owner in owners if owner.get("controller"))
        return str(next(its, ""))

    @property
    def version(self) -> str:
        """The resourceVersion to write against."""
        return str(self.raw["metadata"]["resourceVersion"])

    @property
    def generation(self) -> int:
        """Which version of what its user asks for this is; the status does not count."""
        return int(self.raw["metadata"]["generation"])


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A job, or a new version of one, that cannot be worked with, and why, for its user."""

    raw: Raw
    why: str

    @property
    def uid(self) -> str:
        """The job's UID."""
        return str(self.raw["metadata"]["uid"])


class StatusError(ValueError):
    """A status that we never write: somebody else did."""

    def __init__(self, what: str) -> None:
        super().__init__(f"its status was not written by the operator: {what}")


GONE_REMEMBERED_MAX = 10_000
WHY_BYTES_MAX = 768
RESOURCES_MAX = 32
"""What the ledger takes of one entry."""

ATTEMPT_MAX = 999_999
"""Two months of an attempt every five seconds; pods' names hold no more digits."""

NODES_SIZE_MAX = 1_000_000
"""An aborting entry repeats them, and must fit in the ledger."""

HASHED_FIELDS = (
    "numNodes",
    "numProcPerNode",
    "priorityClassName",
    "resourcesPerNode",
    "template",
    "topology",
)
"""Fields of the spec that an attempt is made from. ``specHash`` is computed from them."""

HASH_VERSION = 2
"""Raise it with every change of ``HASHED_FIELDS`` and of the defaults that the API server sets
in these fields. Hashes of two versions are not compared, so that an upgrade ends no running job."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""What the API server takes as the name of a node. The schema of a status takes others, which would
lead elsewhere as a path, and mean something else in the ledger."""


class Jobs:
    """All jobs by UID.

    One that cannot be read stops no other. If it was read before, what it asked for then goes on to
    hold, so that its attempt is neither forgotten nor taken for that of a deleted job.
    """

    def __init__(self, render: Callable[[Raw], Raw]) -> None:
        """``render`` makes the pod of a job's first rank, whose requests are what a node owes."""
        self._render = render
        self._cached: dict[str, CachedJob] = {}
        self._unreadable: dict[str, Unreadable] = {}
        self._gone: collections.OrderedDict[str, None] = collections.OrderedDict()

    def __repr__(self) -> str:
        return f"<Jobs {len(self._cached)} unreadable={len(self._unreadable)}>"

    def absorb(self, raw: Raw) -> None:
        """A job answered a request of ours. Raises KeyError or ValueError for what is none."""
        self.take(job_objects.answered(raw))

    def is_news(self, old: JobObject | None, new: JobObject | None) -> bool:
        """Whether no answer to a request of ours brought this change before the watch did."""
        if new is None:
            return old is not None and old.uid not in self._gone
        return new.uid not in self._gone and new.rv > self._held_version(new.uid)

    def changed(self, old: JobObject | None, new: JobObject | None) -> None:
        """The watch brought a change; None stands for absence."""
        if new is not None:
            self.take(new)
        elif old is not None:
            self.discard(old.uid)

    def take(self, found: JobObject) -> None:
        """A job was seen in this version; an older one than the one held is ignored."""
        uid = found.uid
        if uid in self._gone:
            return
        held = self._cached.get(uid)
        if self._held_version(uid) >= found.rv:
            return
        try:
            self._cached[uid] = self._read(found, held)
            self._unreadable.pop(uid, None)
        except Exception as error:
            why = _why(error)
            if self.why_unreadable(uid) != why:
                logger.exception("job not readable", extra={"job_uid": uid})
            self._set_aside(found, held, why)

    def _held_version(self, uid: str) -> int:
        held = (self._cached.get(uid), self._unreadable.get(uid))
        return max((_version(each.raw) for each in held if each), default=0)

    def discard(self, uid: str) -> None:
        """A job is gone, and no older version of it may bring it back."""
        self._cached.pop(uid, None)
        self._unreadable.pop(uid, None)
        self._gone[uid] = None
        while len(self._gone) > GONE_REMEMBERED_MAX:
            self._gone.popitem(last=False)

    def get(self, uid: str) -> CachedJob | None:
        """The job with this UID."""
        return self._cached.get(uid)

    def namespace_of(self, uid: str) -> str | None:
        """The namespace of the job with this UID."""
        cached = self._cached.get(uid)
        return None if cached is None else str(cached.raw["metadata"]["namespace"])

    def all(self) -> Iterable[CachedJob]:
        """Every job that is not being deleted."""
        jobs = self._cached.values()
        return [job for job in jobs if "deletionTimestamp" not in job.raw["metadata"]]

    def unreadable(self) -> tuple[Unreadable, ...]:
        """Every job that cannot be read as it stands and is not being deleted."""
        return tuple(
            found
            for found in self._unreadable.values()
            if "deletionTimestamp" not in found.raw["metadata"]
        )

    def why_unreadable(self, uid: str) -> str | None:
        """Why the job as it stands cannot be read; None if it can."""
        found = self._unreadable.get(uid)
        return None if found is None else found.why

    def _set_aside(self, found: JobObject, held: CachedJob | None, why: str) -> None:
        uid = found.uid
        self._unreadable[uid] = Unreadable(found.raw, why)
        if held is not None:
            # The new spec may differ: no more pods of the attempt may be made from the old one.
            spec_hash = held.spec_hash if held.generation == found.generation else ""
            record = _record_or(found.raw, held.record)
            self._cached[uid] = replace(held, object=found, record=record, spec_hash=spec_hash)

    def _read(self, found: JobObject, held: CachedJob | None) -> CachedJob:
        raw = found.raw
        readable = found.uid not in self._unreadable
        if held is not None and readable and held.generation == found.generation:
            found = job_objects.with_held_spec(held.object, found)
            same = replace(held, object=found, record=record_of(raw))
            if _profile(raw) == _profile(held.raw):
                return same
            return replace(same, workload=_workload(same.job, _profile(raw)))
        if found.too_deep:
            raise QuantityError(f"its spec is nested deeper than {body_limits.DEPTH_MAX} levels")
        whole = found.whole
        pod = self._render(whole)["spec"]
        per_node = amounts.requested(projections.asked(pod))
        if len(per_node) > RESOURCES_MAX:
            raise QuantityError(
                f"its pods ask for {len(per_node)} resources, at most {RESOURCES_MAX}"
            )
        created = datetime.datetime.fromisoformat(raw["metadata"]["creationTimestamp"])
        template = job_objects.reduced(whole["spec"]["template"])
        # Its status is read as its record, by rules of its own.
        asked = {name: value for name, value in whole.items() if name != "status"}
        job = schema.read(TrainingJob, asked | {"spec": {**whole["spec"], "template": template}})
        return CachedJob(
            uid=found.uid,
            object=found,
            job=job,
            constraints=topology_constraints.convert(job.spec.topology),
            workload=_workload(job, _profile(raw)),
            per_node=per_node,
            selector=pod.get("nodeSelector", {}),
            tolerations=_tolerations(pod),
            submitted_s=int(created.timestamp()),
            spec_hash="" if found.too_large else _spec_hash(whole["spec"]),
            record=record_of(raw),
        )


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, QuantityError | StatusError) else f"{type(error).__name__}: "
    return protocol.fitted(f"the job cannot be read: {kind}{text}", WHY_BYTES_MAX)


def _profile(raw: Raw) -> str:
    """What the ranks of its attempts recorded; empty while they have not."""
    return str((raw.get("status") or {}).get("profile", ""))


def _workload(job: TrainingJob, recorded: str) -> Workload | None:
    """What it does, as its user has it recorded; else as its own attempts did, if that still fits
    its parallelism: if not, the next attempt records it again. Raises ValueError."""
    workload = job.spec.workload
    if workload is None:
        return None
    if recorded and not workload.profile:
        try:
            return workloads.workload(workload.model_copy(update={"profile": recorded}))
        except ValueError as error:
            logger.info("a recorded profile no longer fits", extra={"why": str(error)})
    return workloads.workload(workload)


def _spec_hash(spec: Raw) -> str:
    data = orjson.dumps({f: spec.get(f) for f in HASHED_FIELDS}, option=orjson.OPT_SORT_KEYS)
    return f"{HASH_VERSION}-{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def _version(raw: Raw) -> int:
    return int(raw["metadata"]["resourceVersion"])


def _record_or(raw: Raw, held: JobRecord) -> JobRecord:
    try:
        return record_of(raw)
    except Exception:
        logger.exception("status not readable", extra={"job_uid": raw["metadata"]["uid"]})
        return held


def record_of(raw: Raw) -> JobRecord:
    """The record a job's status carries; a job without one was never seen by a leader.

    Raises ValueError for one that we never write.
    """
    status = raw.get("status") or {}
    last_termination = status.get("lastTermination")
    points = status.get("checkpoints", ())
    record = JobRecord(
        phase=_phase(status),
        attempt=status.get("attempt", 0),
        ended=status.get("endedAttempt", 0),
        nodes=tuple(status.get("nodes", ())),
        spec_hash=status.get("specHash", ""),
        topology_hash=status.get("known", ""),
        moves=status.get("moves", 0),
        restarts=status.get("restarts", 0),
        failures=status.get("failures", 0),
        start_failures=status.get("startFailures", 0),
        hangs=status.get("hangs", 0),
        last_termination=None if last_termination is None else _cause(last_termination),
        checkpoints=tuple(ResumePoint(point["attempt"], point["step"]) for point in points),
    )
    _check(record)
    return record


def _phase(status: Raw) -> Phase:
    """The phase; of one of a later version, what it means to this one.

    A live attempt is as if it started, until its launchers say that it runs; a job that is over
    stays over; any other waits. Raises ValueError for what is no word.
    """
    value = status.get("phase", Phase.QUEUED.value)
    if not isinstance(value, str):
        raise StatusError(f"phase is {value!r}, expected a word")
    if value in list(Phase):
        return Phase(value)
    if status.get("attempt", 0) > status.get("endedAttempt", 0):
        return Phase.STARTING
    return Phase.FAILED if status.get("finishedAt") else Phase.QUEUED


def _check(record: JobRecord) -> None:
    """Refuse a record that contradicts itself, or that no ledger could hold."""
    live = record.phase in (Phase.STARTING, Phase.RUNNING)
    if record.attempt != record.ended + live:
        expected = "the one after endedAttempt" if live else "endedAttempt"
        raise StatusError(
            f"phase {record.phase} with attempt {record.attempt} and endedAttempt {record.ended}, "
            f"expected attempt to be {expected}"
        )
    if record.attempt > ATTEMPT_MAX:
        raise StatusError(f"attempt is {record.attempt}, expected at most {ATTEMPT_MAX}")
    if bool(record.nodes) is not live and record.phase is not Phase.SUCCEEDED:
        raise StatusError(f"phase {record.phase} with {len(record.nodes)} nodes")
    if not all(map(_NAME.fullmatch, record.nodes)):
        raise StatusError("nodes has what is no name of a node")
    if (size := sum(map(len, record.nodes))) > NODES_SIZE_MAX:
        raise StatusError(f"nodes has {size} bytes, expected at most {NODES_SIZE_MAX}")


def _cause(last_termination: Raw) -> Cause:
    return causes.parse({**last_termination, "code": last_termination["cause"]})


def _tolerations(spec: Raw) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=found.get("key", ""),
            operator=found.get("operator", "Equal"),
            value=found.get("value", ""),
            effect=found.get("effect", ""),
        )
        for found in spec.get("tolerations", ())
    )
