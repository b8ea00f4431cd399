"""Make requests of a leader's actions, and take the responses into its view.

The rules are those of the operator's executor: a final refusal is that of the attempt; for an
unknown outcome or a taken name the object is read; other failures are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.gang import Action, BindPod, CreatePod, DeletePod, WritePlacement
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import Points
from railwright_scheduler.invariants import PodFact
from railwright_scheduler.model.snapshot import Purpose
from railwright_scheduler.simulator.api import Api, placement_name
from railwright_scheduler.simulator.objects import JobObject, Reply, ReplyStatus, Request
from railwright_scheduler.simulator.tables import Copy, Stored


@dataclass(slots=True)
class Executor:
    """Makes requests of actions and records, and remembers what came of them."""

    api: Api
    pods: Copy[str, PodFact]
    jobs: Copy[str, JobObject]
    placed: dict[AttemptKey, bool] = field(default_factory=dict)
    refusals: dict[AttemptKey, str] = field(default_factory=dict)

    def forget_all_but(self, ledger: Ledger) -> None:
        """Drop what is remembered of attempts that left the ledger."""
        kept = {entry.key for entry in ledger.entries}
        self.placed = {key: True for key in self.placed if key in kept}
        self.refusals = {key: why for key, why in self.refusals.items() if key in kept}

    def request(self, action: Action) -> Request | None:
        """What an action is sent as; None when there is no job any more to make it from."""
        entry = action.entry
        match action:
            case WritePlacement():
                land = partial(self.api.put_placement, entry, self._resume(entry))
                return _of("place", entry, "", land, partial(self._placement_answered, entry))
            case CreatePod(_, node_rank):
                job = self.jobs.get(entry.job_uid)
                if job is None:
                    return None
                land = partial(self.api.create_pod, entry, node_rank, job.value.amounts(node_rank))
                on_reply = partial(self._create_answered, entry, node_rank)
                return _of("create", entry, str(node_rank), land, on_reply)
            case BindPod(_, pod):
                node = entry.nodes[pod.node_rank]
                land = partial(self.api.bind_pod, pod.name, pod.uid, node)
                on_reply = partial(self._bind_answered, pod.name, pod.uid, node)
                return _of("bind", entry, pod.uid, land, on_reply)
            case DeletePod(_, pod):
                land = partial(self.api.delete_pod, pod.name, pod.uid)
                return _of("delete", entry, pod.uid, land, self._delete_answered)

    def record(self, job: Stored[JobObject], record: JobRecord) -> Request:
        """A record is only good for the very version of the job that it was derived from."""
        uid = job.value.uid
        return Request(
            f"record {uid} {record.phase} {record.attempt}/{record.ended}",
            ("record", uid),
            partial(self.api.put_record, uid, record, job.version),
            partial(self._record_answered, uid),
        )

    def _resume(self, entry: Entry) -> Points:
        """What the groups of an attempt may read."""
        job = self.jobs.get(entry.job_uid)
        if job is None or entry.purpose is Purpose.PRE_RUN:
            return ()
        return resume_points.readable(job.value.record.checkpoints, entry.attempt)

    def _placement_answered(self, entry: Entry, reply: Reply) -> None:
        if reply.status is ReplyStatus.EXISTS:
            found = self.api.placements.get(placement_name(entry.job_name, entry.attempt))
            if found is not None and found.value.job_uid != entry.job_uid:
                self.refusals[entry.key] = "its Placement is another job's"
            elif found is not None:
                self.placed[entry.key] = True
        elif reply.status is ReplyStatus.DONE:
            self.placed[entry.key] = True

    def _create_answered(self, entry: Entry, node_rank: int, reply: Reply) -> None:
        found = reply.pod
        if reply.status in (ReplyStatus.EXISTS, ReplyStatus.UNKNOWN):
            found = self.api.pod(f"{entry.job_name}-{entry.attempt}-{node_rank}")
        if reply.status is ReplyStatus.REFUSED:
            self.refusals[entry.key] = f"rank {node_rank} was refused"
        elif found is None:
            return
        elif reply.status is ReplyStatus.EXISTS and found.value.job_uid != entry.job_uid:
            self.refusals[entry.key] = f"{found.value.name} is another job's"
        else:
            self.pods.absorb(found.value.uid, found)

    def _bind_answered(self, name: str, uid: str, node: str, reply: Reply) -> None:
        if reply.status in (ReplyStatus.CONFLICT, ReplyStatus.UNKNOWN):
            found = self.api.pod(name)
            if found is not None:
                self.pods.absorb(found.value.uid, found)
        elif reply.status is ReplyStatus.DONE:
            # A binding's answer shows no pod and no version.
            held = self.pods.get(uid)
            if held is not None and not held.value.node:
                self.pods.absorb(uid, Stored(held.version, replace(held.value, node=node)))

    def _delete_answered(self, reply: Reply) -> None:
        if reply.pod is not None:
            self.pods.absorb(reply.pod.value.uid, reply.pod)

    def _record_answered(self, uid: str, reply: Reply) -> None:
        found = self.api.jobs.get(uid)
        if found is None:
            self.jobs.discard(uid)
        else:
            self.jobs.absorb(uid, found)


def _of(
    verb: str, entry: Entry, what: str, land: Callable[[], Reply], on_reply: Callable[[Reply], None]
) -> Request:
    name = f"{verb} {entry.job_uid}/{entry.attempt} {what}"
    return Request(name, name, land, on_reply, entry.key)
