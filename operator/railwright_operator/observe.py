"""The world as one value: the only place where what Kubernetes and launchers say becomes ours.

Reads the copies that the watches keep and the sessions of the launchers; writes to nothing but the
list of suspected nodes and the sessions' list of attempts. Ages are taken here, on one clock: it
stands still while the operator takes in no messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from railwright import wire
from railwright_operator.discovery import Discovery
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.knowledge import Knowledge
from railwright_operator.machines import Machines
from railwright_operator.pre_runs import PreRuns, Standing
from railwright_operator.suspects import Suspects
from railwright_operator.watch.ages import Ages
from railwright_operator.watch.jobs import Jobs, Known
from railwright_operator.watch.node_leases import NodeLeaseChecker
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.pulls import Pulls
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.site import Site
from railwright_operator.witnesses import Witnesses
from railwright_operator.write.actuate import Actuator
from railwright_scheduler.attempt import gang
from railwright_scheduler.attempt.assessment import Assessment, Ongoing, RankSeen
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import EntryState, Ledger
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.decisions import PodNamesTaken
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.snapshot import LOST_GRACE_S, Job, Node, Unavailable
from railwright_scheduler.turn import Turn
from railwright_scheduler.world import AttemptSeen, JobSeen, Progress, World

FORGET_S = 60.0
"""How long after its end a job's launchers are still listened to, for their last beats."""


class Observer:
    """Makes the world of a turn from what the parts of the shell hold."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        site: Site,
        pods: PodIndex,
        discovery: Discovery,
        machines: Machines,
        pulls: Pulls,
        sessions: Sessions,
        kubelets: NodeLeaseChecker,
        actuator: Actuator,
        pre_runs: PreRuns,
        clock: Callable[[], float],
        hearing: Callable[[], float],
    ) -> None:
        self._jobs = jobs
        self._site = site
        self._pods = pods
        self._discovery = discovery
        self._machines = machines
        self._sessions = sessions
        self._actuator = actuator
        self._knowledge = Knowledge()
        self._pre_runs = pre_runs
        self._ages = Ages(clock)
        self._heard_ages = Ages(hearing)
        self._witnesses = Witnesses(
            kubelets,
            pulls=pulls,
            ages=self._ages,
            heard_ages=self._heard_ages,
            hearing=hearing,
        )
        self._suspects = Suspects(kubelets, clock=clock)
        self._ranks: dict[str, tuple[RankSeen, ...]] = {}
        self._known: dict[str, Known] = {}
        self._plan: Turn | None = None
        self._furthest: dict[tuple[str, int], int] = {}
        self._kept_waiting: dict[tuple[str, int], int] = {}
        self._asked: dict[str, tuple[Known, int, Job]] = {}

    async def hear(self) -> None:
        """Put together what is new of the network. To be awaited before a look."""
        await self._discovery.refresh()

    def look(self, ledger: Ledger, isolation: Isolation) -> Iterator[World | None]:
        """What is known now, under this ledger, in steps: others may go on between two of them,
        each of which brings None, and the last the world.

        What the nodes hold and what the attempts show is of one moment, as room is reckoned from
        both. What is heard of ranks may be a little newer. A job that cannot be observed is left
        out, and is a fault of ``isolation``.
        """
        self._ages.turn_begins()
        self._heard_ages.turn_begins()
        nodes = self._with_grace(self._machines.build_nodes(self._discovery.found.fabric))
        self._known = {known.uid: known for known in self._jobs.all()}
        self._pre_runs.look(self._known, isolation)
        in_flight = frozenset(entry.key for entry in ledger.entries)
        attempts = self._attempts(ledger, in_flight)
        jobs: list[JobSeen] = []
        for known in self._known.values():
            yield None
            observe = functools.partial(self._job, known, in_flight)
            seen = isolation.run(Stage.OBSERVATION, known.uid, observe, otherwise=None)
            if seen is not None:
                jobs.append(seen)
        self._ranks = {seen.job.uid: seen.ranks for seen in jobs if seen.ranks}
        self._witnesses.forget_all_but(self._ranks)
        self._asked = {uid: asked for uid, asked in self._asked.items() if uid in self._known}
        digest = self._knowledge.digest(self._machines.fabric, nodes)
        last = self._plan
        world = World(
            ledger=ledger,
            levels=self._machines.fabric.levels,
            nodes=nodes,
            queues=self._site.queues,
            jobs=tuple(jobs),
            attempts=attempts,
            links=self._machines.fabric.links,
            known=digest,
            # Before agents told a new leader how fast nodes are, all look as fast.
            known_age_s=self._ages.of("known", digest) if self._discovery.is_caught_up else 0.0,
            reservations=last.reservations if last else {},
            waits=last.waits if last else {},
            queue_round=last.queue_round if last else None,
            breaker=self._suspects.judge(jobs, self._machines.by_name),
        )
        self._ages.turn_over()
        self._heard_ages.turn_over()
        yield world

    def known(self, job_uid: str) -> Known | None:
        """A job as the last world had it: what its plan was made from, and nothing newer."""
        return self._known.get(job_uid)

    def ranks(self, job_uid: str) -> tuple[RankSeen, ...]:
        """The live attempt's ranks of a job, as of the last world."""
        return self._ranks.get(job_uid, ())

    def pre_run(self, job_uid: str) -> Standing:
        """How a job stands with its pre-run, as of the last world."""
        return self._pre_runs.of(job_uid)

    def racks(self, nodes: tuple[str, ...]) -> int | None:
        """How many known domains of the finest level these nodes stand in."""
        return self._machines.racks(nodes)

    def unprofiled(self, known: Known, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """The kinds of these nodes' devices that the job's profile was not taken on."""
        profile = known.workload.profile if known.workload is not None else None
        return profile.lacks(self._machines.devices(nodes)) if profile is not None else ()

    def follow(self, plan: Turn, isolation: Isolation) -> None:
        """Let launchers of live attempts speak, stop those of revoked ones, forget the others'."""
        self._plan = plan
        in_flight = {entry.key for entry in plan.ledger.entries}
        revoked = {entry.key for entry in plan.ledger.entries if entry.state is EntryState.ABORTING}
        kept = set(plan.unobserved)
        for uid, record in plan.records.items():
            if self._is_forgotten(uid, record, in_flight):
                continue
            kept.add(uid)
            if record.phase is Phase.SUCCEEDED:
                continue  # Its launchers may still be telling how they ended.
            if not record.live or (uid, record.attempt) in revoked:
                self._sessions.revoke(uid, record.attempt)
                continue
            expect = functools.partial(self._expect, uid, record, plan.assessments.get(uid))
            isolation.run(Stage.OBSERVATION, uid, expect, otherwise=None)
        for uid in self._sessions.jobs() - kept:
            self._sessions.forget(uid)

    def _expect(self, uid: str, record: JobRecord, verdict: Assessment | None) -> None:
        self._sessions.expect(
            uid,
            record.attempt,
            nodes=record.nodes,
            num_processes=self._known[uid].job.spec.num_proc_per_node,
            resume=tuple(
                wire.Checkpoint(point.attempt, point.step)
                for point in record.checkpoints
                if point.attempt < record.attempt
            ),
            profiled=self._known[uid].profile != "",
        )
        wanted = isinstance(verdict, Ongoing) and verdict.wants_stacks
        self._sessions.want_stacks(uid, record.attempt, wanted=wanted)

    def _with_grace(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes, each marked that became unready a short time ago."""
        return tuple(
            replace(node, recently_lost=self._unready_s(node) < LOST_GRACE_S)
            if node.unavailable is Unavailable.UNREADY
            else node
            for node in nodes
        )

    def _unready_s(self, node: Node) -> float:
        return self._ages.of("unready", self._machines.by_name[node.name].uid)

    def _is_forgotten(
        self, uid: str, record: JobRecord, in_flight: Collection[tuple[str, int]]
    ) -> bool:
        """Whether the job is over, its pods with it, and its launchers have had their time."""
        if record.phase not in FINAL or (uid, record.attempt) in in_flight:
            return False
        return self._ages.of("over", uid) > FORGET_S

    def _attempts(
        self, ledger: Ledger, in_flight: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], AttemptSeen]:
        """The attempts in flight, and those that are over and still have live pods."""
        over = (key for key in self._pods.attempts() if key not in in_flight and self._is_over(key))
        found = {key: _gang_pods(self._pods.of(key)) for key in over}
        for entry in ledger.entries:
            # A pod can claim any rank; one that the plan does not have is none of the gang's.
            pods = (pod for pod in self._pods.of(entry.key) if pod.node_rank < len(entry.nodes))
            found[entry.key] = _gang_pods(pods)
        # Who deletes its pods again and again does not make it come further each time.
        self._furthest = {
            entry.key: max(self._furthest.get(entry.key, 0), gang.reached(found[entry.key]))
            for entry in ledger.entries
        }
        # Nor does one stand still whose requests we have not come to, behind those of others.
        self._kept_waiting = {
            key: self._kept_waiting.get(key, 0) + self._actuator.is_crowded_out(key)
            for key in self._furthest
        }
        return {key: self._attempt(key, gang_pods) for key, gang_pods in found.items()}

    def _is_over(self, key: tuple[str, int]) -> bool:
        known = self._jobs.get(key[0])
        if known is None or key[1] > known.record.ended:
            return False
        return any(not pod.terminal for pod in self._pods.of(key))

    def _attempt(self, key: tuple[str, int], pods: tuple[Pod, ...]) -> AttemptSeen:
        return AttemptSeen(
            pods=pods,
            placed=self._actuator.placed(key),
            refusal=self._actuator.refusal(key),
            hindrance=self._actuator.hindrance(key),
            age_s=self._ages.of("entry", *key),
            stalled_s=self._ages.of(
                "commit", *key, self._furthest.get(key, 0), self._kept_waiting.get(key, 0)
            ),
        )

    def _job(self, known: Known, in_flight: Collection[tuple[str, int]]) -> JobSeen:
        record, uid = known.record, known.uid
        view = self._sessions.attempt(uid, record.attempt)
        ranks: tuple[RankSeen, ...] = ()
        bound_age_s = 0.0
        if record.live and (uid, record.attempt) not in in_flight:
            bound_age_s = self._heard_ages.of("bound", uid, record.attempt)
            pods = self._pods.of((uid, record.attempt))
            ranks = self._witnesses.ranks(known, pods=pods, view=view, nodes=self._machines.by_name)
        return JobSeen(
            job=self._job_of(known),
            suspend=known.job.spec.suspend,
            backoff_limit=known.job.spec.backoff_limit,
            record=record,
            ranks=ranks,
            started=record.phase is Phase.RUNNING or _has_started(view),
            bound_age_s=bound_age_s,
            ended_age_s=self._ages.of("ended", uid, record.ended),
            held=known.too_large
            or self._site.missing_class(known.job.spec.priority_class_name)
            or self._taken_names(known)
            or self._pre_runs.of(uid).held,
            shape=known.shape,
            # A pre-run is over too soon for a move to pay.
            progress=None if known.ahead_of else _progress(view),
            watch=self._witnesses.watch(known, view),
        )

    def _taken_names(self, known: Known) -> PodNamesTaken | None:
        """Why no pod of the next attempt can be made yet: a job deleted and applied again finds the
        pods of the one before it."""
        if known.record.live:
            return None
        metadata, need = known.raw["metadata"], known.job.spec.num_nodes
        taken = self._pods.strangers(
            known.uid,
            namespace=metadata["namespace"],
            job_name=metadata["name"],
            attempt=known.record.attempt + 1,
        )
        return PodNamesTaken(need, len(taken), taken[0]) if taken else None

    def _job_of(self, known: Known) -> Job:
        """What its user asks for; made again only when the job or its class changed."""
        metadata, spec = known.raw["metadata"], known.job.spec
        priority = self._site.priority(spec.priority_class_name)
        held = self._asked.get(known.uid)
        if held is not None and held[0] is known and held[1] == priority:
            return held[2]
        job = Job(
            uid=known.uid,
            namespace=metadata["namespace"],
            name=metadata["name"],
            queue=spec.queue,
            priority=priority,
            # A pre-run has the place in line of the job that waits for it.
            submitted_s=self._known.get(known.ahead_of, known).submitted_s,
            attempt=known.record.attempt + 1,
            num_nodes=spec.num_nodes,
            per_node=known.per_node,
            selector=known.selector,
            tolerations=known.tolerations,
            ranks_per_node=spec.num_proc_per_node,
            workload=known.workload,
            terms=known.terms,
        )
        self._asked[known.uid] = known, priority, job
        return job


def _gang_pods(found: Iterable[PodRecord]) -> tuple[Pod, ...]:
    return tuple(map(_gang_pod, found))


def _gang_pod(record: PodRecord) -> Pod:
    return Pod(
        name=record.name,
        uid=record.uid,
        node_rank=record.node_rank,
        node=record.node,
        terminal=record.terminal,
        deleting=record.deleting,
        amounts=record.requests,
    )


def _has_started(view: SessionView | None) -> bool:
    return view is not None and view.started_at_s is not None


def _progress(view: SessionView | None) -> Progress | None:
    said = None if view is None else view.progress
    return None if said is None else Progress(said.step, said.total_steps)
