"""The cache of TrainingJobs, converted for scheduling cycles.

Changes come from the watch and from the responses to our own writes. The newer of two versions is
kept, so that a cycle never uses a status older than its own write.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from railwright import protocol
from railwright_api import names, schema
from railwright_api.quantities import QuantityError
from railwright_api.training_job import TrainingJob
from railwright_conversion import job_roles, times, workloads
from railwright_kube import body_limits
from railwright_operator.watch import job_objects, spec_hash
from railwright_operator.watch.job_objects import JobObject
from railwright_operator.watch.job_records import record_of
from railwright_operator.watch.owned import OwnedObjects, PlacementRecord, ProfileRecord
from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import DeletedAttempt, ObservedPreRun
from railwright_scheduler.model.rank_layout import RankLayout, number_ranks
from railwright_scheduler.model.reasons import TooLarge
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.model.workload import Workload

logger = logging.getLogger(__name__)

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CachedJob:
    """A TrainingJob as the watch last brought it: the object, its spec converted, and its record.

    ``job`` holds only the part of the pod template that pods are accounted for by. The nodes of the
    record are empty until they are known: see ``Jobs.place``.
    """

    uid: str
    object: JobObject
    job: TrainingJob
    roles: tuple[Role, ...]
    layout: RankLayout
    submitted_s: int
    profile: ProfileRecord | None
    spec_hash: str
    pre_run_hash: str
    record: JobRecord

    @property
    def raw(self) -> Raw:
        """The metadata and the status."""
        return self.object.raw

    @property
    def too_large(self) -> TooLarge | None:
        """Why no pod can be created from the spec; None if one can."""
        return self.object.too_large

    def layout_of(self, record: JobRecord) -> RankLayout:
        """The numbers of the ranks of the live attempt. A pre-run has the role that trains alone,
        on fewer nodes."""
        if record.phase is not Phase.PROFILING:
            return self.layout
        training = self.layout.training.role
        (role,) = (role for role in self.roles if role.name == training)
        return number_ranks([replace(role, replicas=len(record.nodes))])

    @property
    def workload(self) -> Workload | None:
        """The workload of its ranks; None if it is unknown."""
        return next((role.workload for role in self.roles if role.workload is not None), None)

    def with_workload(self, workload: Workload | None) -> CachedJob:
        """The job with another workload of the role that trains."""
        trains = self.job.spec.training_role.name
        return replace(
            self,
            roles=tuple(
                replace(role, workload=workload) if role.name == trains else role
                for role in self.roles
            ),
        )

    @property
    def requested_pre_run(self) -> ObservedPreRun | None:
        """The pre-run that the job requests; None if it requests none."""
        workload = self.workload
        if self.job.spec.profiling.pre_run == "Never" or workload is None:
            return None
        is_profiled = workload.profile is not None
        error = "" if is_profiled else self._profile_error()
        return ObservedPreRun(self.pre_run_hash, profiled=is_profiled, error=error)

    def _profile_error(self) -> str:
        """Why the profile that a live pre-run recorded does not fit the job; empty if it has not
        recorded one."""
        spec, profile, record = self.job.spec, self.profile, self.record
        assert spec.workload is not None, self.uid
        is_own = profile is not None and profile.attempt == record.attempt
        if profile is None or not is_own or record.phase is not Phase.PROFILING:
            return ""
        try:
            workloads.convert(spec.workload, spec.training_role.ranks, profile.document)
        except ValueError as error:
            return str(error)
        return ""

    @property
    def generation(self) -> int:
        """The version of the spec."""
        return int(self.raw["metadata"]["generation"])


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """A job, or a new version of one, that cannot be read, and the reason for its user."""

    raw: Raw
    why: str

    @property
    def uid(self) -> str:
        """The job's UID."""
        return str(self.raw["metadata"]["uid"])


GONE_REMEMBERED_MAX = 10_000
WHY_BYTES_MAX = 768


class Jobs:
    """All jobs by UID.

    A job that cannot be read affects no other job. If an earlier version was read, its spec stays
    in force, so that the attempt does not count as that of a deleted job.
    """

    def __init__(
        self,
        render: Callable[[Raw, int], Raw],
        expect: Callable[[int], None],
    ) -> None:
        """``render`` makes the first pod of the role with this index, which has the requests of
        each of its pods. ``expect`` gets the version of each response, before the watch has it."""
        self._render, self._expect = render, expect
        self._cached: dict[str, CachedJob] = {}
        self._unreadable: dict[str, UnreadableJob] = {}
        self._profiles = OwnedObjects[ProfileRecord]()
        self._placements = OwnedObjects[PlacementRecord]()
        self._gone: collections.OrderedDict[str, None] = collections.OrderedDict()

    def absorb(self, raw: Raw) -> None:
        """Take in the response to a request. Raises KeyError or ValueError if it is no job."""
        found = job_objects.answered(raw)
        self._expect(found.rv)
        self.take(found)

    def is_news(self, old: JobObject | None, new: JobObject | None) -> bool:
        """Whether this change was not already taken in from the response to a request."""
        if new is None:
            return old is not None and old.uid not in self._gone
        return new.uid not in self._gone and new.rv > self._held_version(new.uid)

    def changed(self, old: JobObject | None, new: JobObject | None) -> None:
        """Take in a change from the watch; None means absent."""
        if new is not None:
            self.take(new)
        elif old is not None:
            self.discard(old.uid)

    def take(self, found: JobObject) -> None:
        """Take in this version of a job, unless a newer one is held."""
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
                extra = {"job_uid": uid, "error": why}
                if isinstance(error, ValueError):
                    # What its user wrote, and reads on the job: no fault of ours.
                    logger.warning("job not readable", extra=extra)
                else:
                    logger.exception("job not readable", extra=extra)
            self._set_aside(found, held, why)

    def profile_changed(self, old: ProfileRecord | None, new: ProfileRecord | None) -> None:
        """Take in a change of a Profile from the watch; None means absent."""
        self._profiles.change(old, new)
        for uid in {record.job_uid for record in (old, new) if record}:
            held = self._cached.get(uid)
            if held is not None:
                profile = self._profiles.of(held.raw["metadata"], held.raw["metadata"]["name"])
                changed = replace(held, profile=profile)
                self._cached[uid] = changed.with_workload(job_roles.workload(held.job, profile))

    def placement_changed(self, old: PlacementRecord | None, new: PlacementRecord | None) -> None:
        """Take in a change of a Placement from the watch or from the response to its creation; None
        means absent. The nodes of an attempt stay as they were first read."""
        self._placements.change(old, new)
        held = None if new is None else self._cached.get(new.job_uid)
        if held is not None:
            self.place(held, self._nodes_of(held.raw, held.record, held.record))

    def place(self, cached: CachedJob, nodes: tuple[str, ...]) -> CachedJob:
        """The job with these nodes of its live attempt, kept from now on unless it has others."""
        record = cached.record
        if not record.live or record.nodes or not nodes:
            return cached
        placed = replace(cached, record=replace(record, nodes=nodes))
        if self._cached.get(cached.uid) is cached:
            self._cached[cached.uid] = placed
        return placed

    def placement(self, raw: Raw, attempt: int) -> PlacementRecord | None:
        """The Placement of this attempt of a job; None if it is missing."""
        metadata = raw["metadata"]
        return self._placements.of(metadata, names.placement_name(metadata["name"], attempt))

    def _nodes_of(self, raw: Raw, record: JobRecord, held: JobRecord | None) -> tuple[str, ...]:
        """The nodes of the live attempt: those held, or else those in its Placement."""
        if not record.live:
            return ()
        if held is not None and held.live and held.attempt == record.attempt and held.nodes:
            return held.nodes
        found = self.placement(raw, record.attempt)
        return found.nodes if found is not None else ()

    def _record_of(self, raw: Raw, held: JobRecord | None) -> JobRecord:
        """The record in the status, with the nodes of the live attempt as far as they are known.
        Raises ValueError for a status that the operator does not write."""
        record = record_of(raw)
        return replace(record, nodes=self._nodes_of(raw, record, held))

    def _record_or(self, raw: Raw, held: JobRecord) -> JobRecord:
        try:
            return self._record_of(raw, held)
        except Exception:
            logger.exception("status not readable", extra={"job_uid": raw["metadata"]["uid"]})
            return held

    def _held_version(self, uid: str) -> int:
        held = (self._cached.get(uid), self._unreadable.get(uid))
        return max((_version(each.raw) for each in held if each), default=0)

    def discard(self, uid: str) -> None:
        """Remove a deleted job; older versions of it are ignored from now on."""
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

    def layout_of(self, key: AttemptKey) -> RankLayout | None:
        """The ranks of an attempt; None unless it is live and its pods were made from the spec as
        it is now."""
        cached = self._cached.get(key[0])
        if cached is None or key[1] != cached.record.attempt or not cached.record.nodes:
            return None
        record = cached.record
        is_current = record.spec_hash in (cached.spec_hash, cached.pre_run_hash)
        return cached.layout_of(record) if is_current and record.spec_hash else None

    def all(self) -> Iterable[CachedJob]:
        """Every job that is not being deleted."""
        jobs = self._cached.values()
        return [job for job in jobs if "deletionTimestamp" not in job.raw["metadata"]]

    def deleted(self) -> tuple[DeletedAttempt, ...]:
        """The live attempts of jobs that are being deleted, but for those whose pods are to stay
        (``kubectl delete --cascade=orphan``)."""
        return tuple(
            DeletedAttempt(uid, metadata["namespace"], metadata["name"], record.attempt, nodes)
            for uid, cached in self._cached.items()
            if "deletionTimestamp" in (metadata := cached.raw["metadata"])
            and "orphan" not in metadata.get("finalizers", ())
            and (record := cached.record).live
            and (nodes := record.nodes)
        )

    def unreadable(self) -> tuple[UnreadableJob, ...]:
        """Every job whose newest version cannot be read and that is not being deleted."""
        return tuple(
            found
            for found in self._unreadable.values()
            if "deletionTimestamp" not in found.raw["metadata"]
        )

    def why_unreadable(self, uid: str) -> str | None:
        """Why the newest version of the job cannot be read; None if it can."""
        found = self._unreadable.get(uid)
        return None if found is None else found.why

    def _set_aside(self, found: JobObject, held: CachedJob | None, why: str) -> None:
        uid = found.uid
        self._unreadable[uid] = UnreadableJob(found.raw, why)
        if held is not None:
            # The new spec may differ: no more pods of the attempt may be made from the old one.
            kept = replace(held, object=found, record=self._record_or(found.raw, held.record))
            is_same = held.generation == found.generation
            self._cached[uid] = kept if is_same else replace(kept, spec_hash="", pre_run_hash="")

    def _read(self, found: JobObject, held: CachedJob | None) -> CachedJob:
        raw = found.raw
        record = self._record_of(raw, None if held is None else held.record)
        readable = found.uid not in self._unreadable
        if held is not None and readable and held.generation == found.generation:
            found = job_objects.with_held_spec(held.object, found)
            return replace(held, object=found, record=record)
        if found.too_deep:
            raise QuantityError(f"its spec is nested deeper than {body_limits.DEPTH_MAX} levels")
        whole = found.whole
        roles = job_objects.reduced(whole["spec"]["roles"])
        # The status is read separately, as the record.
        desired = {name: value for name, value in whole.items() if name != "status"}
        job = schema.read(TrainingJob, desired | {"spec": {**whole["spec"], "roles": roles}})
        profile = self._profiles.of(raw["metadata"], raw["metadata"]["name"])
        converted = tuple(
            job_roles.convert(job, index, self._render(whole, index)["spec"], profile)
            for index in range(len(roles))
        )
        # Of a job that is too large they are reduced: it starts no attempt.
        templates = () if found.too_large else [role["template"] for role in whole["spec"]["roles"]]
        return CachedJob(
            uid=found.uid,
            object=found,
            job=job,
            roles=converted,
            layout=number_ranks(converted, training=job.spec.training_role.name),
            profile=profile,
            submitted_s=times.parse(raw["metadata"]["creationTimestamp"]),
            spec_hash=spec_hash.of(job.spec, templates) if templates else "",
            pre_run_hash=spec_hash.of_pre_run(job.spec, templates) if templates else "",
            record=record,
        )


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return protocol.fitted(f"the job cannot be read: {kind}{text}", WHY_BYTES_MAX)


def _version(raw: Raw) -> int:
    return int(raw["metadata"]["resourceVersion"])
