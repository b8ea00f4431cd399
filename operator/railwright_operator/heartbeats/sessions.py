"""The start barrier and the last message of every launcher.

Everything is in memory. After a restart of the operator, launchers at the barrier register again,
and a heartbeat with running processes proves that the barrier was passed. Two facts must not be
lost: which attempt is the current one, and that it was revoked. The caller of ``expect`` and
``revoke`` repeats them from durable records. No message of a revoked attempt is accepted, even with
a valid token.

The cost of a message does not depend on the number of ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from railwright import profile, protocol
from railwright_operator.heartbeats.interval import (
    LauncherCount,
    beat_interval_s,
    continue_answer,
    late_beat_s,
    register_interval_s,
)
from railwright_operator.heartbeats.recording import Recording
from railwright_operator.heartbeats.validation import ResumeLists, unlikely_step
from railwright_operator.heartbeats.views import LauncherView, SessionView, is_news
from railwright_process.messages import RefusedError
from railwright_scheduler.model.rank_layout import EMPTY, RankLayout

MISSING_NAMED_MAX = 64

PAUSES = (protocol.Phase.EVALUATING, protocol.Phase.CHECKPOINTING)
"""Phases of some ranks in which others may wait for them."""


@dataclass(slots=True)
class _Session:
    job_uid: str
    attempt: int
    nodes: tuple[str, ...]
    layout: RankLayout
    resume: ResumeLists
    ranks: list[LauncherView]
    missing: dict[int, None]
    masters: dict[str, tuple[str, int]] = field(default_factory=dict)
    started_at_s: float | None = None
    revoked: bool = False
    committing: set[str] = field(default_factory=set)
    shown: SessionView | None = None
    recording: Recording = field(default_factory=Recording)
    training_since_s: float = 0.0
    stacks_since_s: float | None = None

    def find_masters(self) -> None:
        """Set the master of each group that has none and whose launchers are all registered. After
        a restart of the operator some groups may run already, and others wait at the barrier."""
        for group in self.layout.masters.keys() - self.masters.keys():
            ranks = [self.ranks[pod] for pod in self.layout.pods_of(group, len(self.ranks))]
            if ranks and all(rank.address for rank in ranks):
                self.masters[group] = ranks[0].address, ranks[0].master_port

    def run_of(self, group: str) -> str:
        """The address and port of the group's first rank; empty if unknown or no IP address."""
        run = ":".join(map(str, self.masters.get(group, ())))
        return run if len(run.encode()) <= protocol.RUN_BYTES_MAX else ""


class Sessions:
    """The current attempt of every job whose launchers may send messages.

    ``clock`` is monotonic seconds. ``wake`` is called for every change that a decision may depend
    on. A later step is no such change.
    """

    def __init__(self, *, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._sessions: dict[str, _Session] = {}
        self._launchers = LauncherCount()

    def expect(
        self,
        job_uid: str,
        attempt: int,
        *,
        nodes: tuple[str, ...],
        layout: RankLayout,
        resume: ResumeLists,
    ) -> None:
        """Accept messages of this attempt from now on. ``nodes`` are by the number of the pod.
        ``resume`` has for each group up to which step it may read which earlier attempt.

        Earlier attempts are over. A repeated call changes nothing, nor does it undo a revocation.
        """
        held = self._sessions.get(job_uid)
        if held is not None and held.attempt >= attempt:
            return
        ranks = [LauncherView(rank, node) for rank, node in enumerate(nodes)]
        missing = dict.fromkeys(range(len(nodes)))
        self._launchers.update(job_uid, len(nodes))
        self._sessions[job_uid] = _Session(
            *(job_uid, attempt, nodes, layout, resume, ranks, missing),
            training_since_s=self._clock(),
        )

    def revoke(self, job_uid: str, attempt: int) -> None:
        """Accept no more messages of this attempt and of those before it."""
        held = self._sessions.get(job_uid)
        if held is None or held.attempt < attempt:
            self._sessions[job_uid] = _Session(
                job_uid, attempt, (), EMPTY, {}, [], {}, revoked=True
            )
            self._launchers.update(job_uid, 0)
        elif held.attempt == attempt:
            held.revoked, held.shown = True, None
            self._launchers.update(job_uid, 0)

    def request_stacks(self, job_uid: str, attempt: int, *, needed: bool) -> None:
        """Set whether the launchers of this attempt are to send the stacks of their ranks."""
        held = self._sessions.get(job_uid)
        if held is None or held.attempt != attempt or (held.stacks_since_s is not None) is needed:
            return
        reporting = (rank for rank in held.ranks if rank.received_at_s is not None)
        late_s = max((late_beat_s(rank.beat_interval_s) for rank in reporting), default=0.0)
        held.stacks_since_s, held.shown = self._clock() + late_s if needed else None, None

    def forget(self, job_uid: str) -> None:
        """Drop the job; messages of its launchers are refused from now on."""
        self._sessions.pop(job_uid, None)
        self._launchers.update(job_uid, 0)

    def jobs(self) -> frozenset[str]:
        """The UIDs of all jobs held here."""
        return frozenset(self._sessions)

    def attempt(self, job_uid: str, attempt: int) -> SessionView | None:
        """The state of this attempt; None if it is not the current one. The same object until it
        changes."""
        held = self._sessions.get(job_uid)
        if held is None or held.attempt != attempt:
            return None
        if held.shown is None:
            held.shown = SessionView(
                job_uid=job_uid,
                attempt=attempt,
                layout=held.layout,
                ranks=tuple(held.ranks),
                missing=tuple(sorted(held.missing)),
                started_at_s=held.started_at_s,
                revoked=held.revoked,
                profile=held.recording.profile,
                training_since_s=held.training_since_s,
                stacks_since_s=held.stacks_since_s,
            )
        return held.shown

    def admit(self, member: protocol.Member) -> None:
        """Raise RefusedError unless messages of this member are accepted."""
        self._session(member)

    def register(self, message: protocol.Register, pod_uid: str) -> protocol.Registered:
        """Register a launcher; the response has the world once every node rank is registered.

        Raises RefusedError.
        """
        session, before = self._claim_rank(message.member, pod_uid)
        rank = message.member.node_rank
        expected = session.layout.of(rank).ranks_per_pod
        if message.num_processes != expected:
            raise RefusedError(f"num_processes is {message.num_processes}, the job has {expected}")
        address, port = message.address, message.master_port
        if session.started_at_s is None or not before.address:
            self._update(session, rank, address=address, master_port=port, registered=True)
        session.missing.pop(rank, None)
        if not session.missing and session.started_at_s is None:
            session.started_at_s = self._clock()
        if session.started_at_s is not None:
            session.find_masters()
        launchers = len(session.nodes)
        waiting = launchers - len(session.missing) if session.started_at_s is None else 0
        self._launchers.update(session.job_uid, launchers, waiting=waiting)
        interval_s = register_interval_s(self._launchers.waiting)
        stated_s = max(interval_s or 0, protocol.HEARTBEAT_INTERVAL_S)
        after = self._update(session, rank, stated_s, sequence=-1)
        if not before.registered or before.address != after.address:
            self._wake()
        return _registered(session, rank, interval_s)

    def heartbeat(self, message: protocol.Heartbeat, pod_uid: str) -> protocol.HeartbeatAnswer:
        """Store a heartbeat. A repeated or overtaken one changes only the time of the last message.

        Raises RefusedError. A refused heartbeat counts as a message of its launcher too.
        """
        session, before = self._claim_rank(message.member, pod_uid)
        rank = message.member.node_rank
        for reason in _contradictions(session.layout, message):
            self._update(session, rank)
            raise RefusedError(reason)
        requested = session.stacks_since_s is not None
        interval_s = beat_interval_s(0 if requested else self._launchers.total)
        answer = continue_answer(interval_s, stacks=requested)
        if message.sequence <= before.sequence:
            self._update(session, rank, interval_s)
            return answer
        unlikely = unlikely_step(session.resume, before.progress, message.progress)
        if unlikely:
            message = replace(message, progress=None)
        after = self._update(session, rank, interval_s, **self._facts(before, message))
        if message.steps and message.steps.phase in PAUSES and session.layout.trains(rank):
            session.training_since_s = self._clock()
        if message.running or message.exited:
            session.missing.pop(rank, None)
            if session.started_at_s is None:
                session.started_at_s = self._clock()
                self._launchers.update(session.job_uid, len(session.nodes))
            if message.master_address:
                group = session.layout.of(rank).group
                session.masters.setdefault(group, (message.master_address, message.master_port))
        if is_news(before, after):
            self._wake()
        if unlikely:
            raise RefusedError(unlikely)
        return answer

    async def profiled(self, message: profile.Handover, pod_uid: str) -> protocol.HeartbeatAnswer:
        """Store the recording of a rank; those of all ranks become the job's profile.

        Raises RefusedError.
        """
        session, _ = self._claim_rank(message.member, pod_uid)
        self._update(session, message.member.node_rank)
        role = session.layout.of(message.member.node_rank)
        if role.group != session.layout.training.group:
            training = session.layout.training.group
            raise RefusedError(
                f"group {role.group} records, expected group {training}", HTTPStatus.FORBIDDEN
            )
        own = role.ranks_of(message.member.node_rank)
        if message.part.rank not in own:
            raise RefusedError(f"part.rank is {message.part.rank}, expected {own[0]} to {own[-1]}")
        if await session.recording.take(message.part, ranks=role.world_size):
            session.shown = None
            self._wake()
        return protocol.HeartbeatAnswer(protocol.Order.CONTINUE)

    def claim_commit(self, message: protocol.Commit, pod_uid: str) -> str:
        """Check that this commit may be granted now, one at a time for each group; return the
        group. Raises RefusedError."""
        session, _ = self._claim_rank(message.member, pod_uid)
        self._update(session, message.member.node_rank)
        role = session.layout.of(message.member.node_rank)
        if message.member.node_rank != role.master:
            raise RefusedError(
                f"node rank {message.member.node_rank} commits, expected {role.master}",
                HTTPStatus.FORBIDDEN,
            )
        if role.group in session.committing:
            raise RefusedError(
                "the commit before this one is not recorded yet", HTTPStatus.SERVICE_UNAVAILABLE
            )
        session.committing.add(role.group)
        return role.group

    def settle_commit(self, message: protocol.Commit, *, recorded: bool) -> None:
        """End what ``claim_commit`` began. Raises RefusedError if it was revoked meanwhile."""
        member = message.member
        held = self._sessions.get(member.job_uid)
        if held is not None and held.attempt == member.attempt:
            group = held.layout.of(member.node_rank).group
            held.committing.discard(group)
        if recorded:
            self._session(member)

    def _session(self, member: protocol.Member) -> _Session:
        held = self._sessions.get(member.job_uid)
        if held is None or held.attempt < member.attempt:
            raise RefusedError(
                f"attempt {member.attempt} of this job is not expected here", HTTPStatus.TOO_EARLY
            )
        if held.attempt > member.attempt or held.revoked:
            raise RefusedError(f"attempt {member.attempt} was revoked", HTTPStatus.CONFLICT)
        if member.node_rank >= len(held.nodes):
            raise RefusedError(
                f"node_rank is {member.node_rank}, expected less than {len(held.nodes)}",
                HTTPStatus.FORBIDDEN,
            )
        return held

    def _claim_rank(self, member: protocol.Member, pod_uid: str) -> tuple[_Session, LauncherView]:
        """The rank of this pod, to be updated. Before the start another pod may take the rank,
        after it none may. Raises RefusedError."""
        session = self._session(member)
        session.shown = None
        rank = session.ranks[member.node_rank]
        if rank.pod_uid != pod_uid:
            if rank.pod_uid:
                if session.started_at_s is not None:
                    reason = "the attempt started with another pod here"
                    raise RefusedError(reason, HTTPStatus.CONFLICT)
                rank = LauncherView(member.node_rank, session.nodes[member.node_rank])
                session.missing[member.node_rank] = None
            rank = session.ranks[member.node_rank] = replace(rank, pod_uid=pod_uid)
        return session, rank

    def _update(
        self, session: _Session, node_rank: int, interval_s: float | None = None, **facts: Any
    ) -> LauncherView:
        """Record that a launcher sent a message now, with these facts."""
        rank = session.ranks[node_rank]
        interval_s = interval_s or rank.beat_interval_s
        now_s = self._clock()
        rank = replace(rank, received_at_s=now_s, beat_interval_s=interval_s, **facts)
        session.ranks[node_rank] = rank
        return rank

    def _facts(self, before: LauncherView, message: protocol.Heartbeat) -> dict[str, Any]:
        failure = before.failure or message.failure
        return dict(
            sequence=message.sequence,
            registered=before.registered or message.running + message.exited > 0,
            running=message.running,
            exited=message.exited,
            progress=message.progress or before.progress,
            failure=failure,
            failed_at_s=self._clock() if before.failure is None and failure else before.failed_at_s,
            resumed_from=message.resumed_from or before.resumed_from,
            committed=message.committed or before.committed,
            saved=message.saved or before.saved,
            skipped=message.skipped or before.skipped,
            steps=message.steps or before.steps,
            stacks=message.stacks,
        )


def _registered(session: _Session, node_rank: int, interval_s: int | None) -> protocol.Registered:
    """The response to a registration: go after the barrier, once there is a master; else wait."""
    role = session.layout.of(node_rank)
    master = session.masters.get(role.group)
    if session.started_at_s is None or master is None:
        missing = tuple(itertools.islice(session.missing, MISSING_NAMED_MAX))
        return protocol.Registered(protocol.Order.WAIT, missing=missing, interval_s=interval_s)
    # Beside those of the gang there may be groups of earlier specs, as many as have checkpoints.
    groups = [*dict.fromkeys((*session.layout.masters, *session.resume))][: protocol.GROUPS_MAX]
    world = protocol.WorldInfo(
        world_size=role.world_size,
        num_nodes=role.launchers,
        first_rank=role.ranks_of(node_rank).start,
        group_rank=role.pods_before + node_rank - role.pods.start,
        role_rank=(node_rank - role.pods.start) * role.ranks_per_pod,
        role_size=len(role.pods) * role.ranks_per_pod,
        master_address=master[0],
        master_port=master[1],
        group=role.group,
        groups=tuple(
            protocol.Group(name, session.resume.get(name, ()), session.run_of(name))
            for name in groups
        ),
    )
    return protocol.Registered(protocol.Order.GO, world=world)


def _contradictions(layout: RankLayout, message: protocol.Heartbeat) -> Iterator[str]:
    """The facts in a heartbeat that its launcher cannot report."""
    member = message.member
    own = layout.of(member.node_rank).ranks_of(member.node_rank)
    count = len(own)
    if message.running + message.exited > count:
        seen = message.running + message.exited
        yield f"running + exited is {seen}, expected at most {count}"
    expected = f"expected {own[0]} to {own[-1]}"
    if message.failure is not None and message.failure.rank not in own:
        yield f"failure.rank is {message.failure.rank}, {expected}"
    named = [] if message.steps is None else [*message.steps.ranks]
    named += [rank for stack in message.stacks or () for rank in stack.ranks]
    if not all(rank in own for rank in named):
        yield f"steps or stacks name ranks {named}, {expected}"
    committed, resumed = message.committed, message.resumed_from
    if committed is not None and committed.attempt != member.attempt:
        yield f"committed.attempt is {committed.attempt}, expected {member.attempt}"
    if resumed is not None and resumed.attempt > member.attempt:
        yield f"resumed_from.attempt is {resumed.attempt}, expected at most {member.attempt}"
