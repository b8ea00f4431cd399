"""One whole run of the operator: faults for a while, then peace, in which all must settle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from history import invariants
from history.invariants import ViolationError
from history.rest import check_rest
from history.stored import Job
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import FINAL, Phase
from simulator import virtual_loop
from simulator.deadlines import Deadlines, has_expiring_failure, is_active
from simulator.disturbances import Disturbances
from simulator.emphasis import EMPHASES, Emphasis, of_seed
from simulator.error_log import errors_end
from simulator.machines import GPU, gpus_of
from simulator.simulated_cluster import SimulatedCluster
from simulator.virtual_loop import VirtualLoop

FAULTS = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a fault of the simulation raises: the seed must not be lost."""

ROUND_S = 5.0
ROUNDS_MAX = 600
STILL_ROUNDS = 3
PROMPT_ROUNDS = 12
"""By then late requests have landed, and the leader, or the next one, has listed all objects."""

REST_S = 60.0
"""Longer than any pause of the operator, and than it expects launchers of a job that is over."""


NO_REASONS = ("Queued", *CauseCode)
"""What the status of a job says before the scheduler says why it waits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run went through: seconds, requests that landed by method, phases that jobs ended in,
    causes of aborts, those of pre-runs alone, how often what happened, how many versions of what
    the controllers publish were ``compared`` with their sources or ``left_out``, and a digest of
    all writes and events in order."""

    seconds: float
    requests: Mapping[str, int]
    phases: Mapping[str, int]
    causes: Mapping[str, int]
    pre_runs: Mapping[str, int]
    events: Mapping[str, int]
    compared: int
    left_out: int
    digest: str


class RunError(AssertionError):
    """A run that broke; the message ends with the last things that happened. ``is_violation``: an
    invariant is broken, and it is no error of the operator or the simulation."""

    def __init__(self, message: str, *, is_violation: bool) -> None:
        super().__init__(message)
        self.is_violation = is_violation


def run(seed: int, emphasis: str = "", *, rest_s: float = REST_S) -> Outcome:
    """Run one seed with the emphasis of this name, or the one whose turn it is; it must stay at
    rest for so long. Raises RunError."""
    its = EMPHASES[emphasis or of_seed(seed)]
    return virtual_loop.run(
        lambda loop: _Run(loop, seed, its, rest_s=rest_s).logged(), Random(f"{seed} computing")
    )


class _Run:
    def __init__(self, loop: VirtualLoop, seed: int, emphasis: Emphasis, *, rest_s: float) -> None:
        self._rest_s = rest_s
        self._name = f"{emphasis.name} {seed}"
        self._loop = loop
        self._broken: BaseException | None = None
        self._expects_findings = True
        self._trace: list[str] = []
        loop.set_exception_handler(self._on_error)
        self._cluster = SimulatedCluster(loop, seed, has_site=emphasis.has_site)
        self._disturbances = Disturbances(self._cluster, emphasis, Random(f"{seed} disturbances"))

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of the cluster raised: an invariant is broken, or the simulator is."""
        self._break(context.get("exception") or RuntimeError(str(context)))

    async def logged(self) -> Outcome:
        """The whole run; an error that the operator logs breaks it."""
        books_twice = "orphaned pod" in self._disturbances.emphasis.weights
        with errors_end(
            self._break,
            books_twice=books_twice,
            expects_findings=lambda: self._expects_findings,
        ):
            return await self.whole()

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken, self._trace = error, [*self._cluster.trace]

    async def whole(self) -> Outcome:
        cluster = self._cluster
        try:
            await self._disturb(self._disturbances.emphasis.busy_s)
            await self._settle()
        except (ViolationError, AssertionError, *FAULTS) as broken:
            trace = "\n".join(self._trace or cluster.trace)
            raise RunError(
                f"{self._name}: {broken!r}\n{trace}",
                is_violation=isinstance(broken, ViolationError),
            ) from broken
        finally:
            self._loop.resume_all()  # A paused process cannot be cancelled.
        pre_runs = cluster.checker.cluster.pre_runs
        phases = Counter(job.record.phase.value for job in cluster.checker.cluster.jobs.values())
        return Outcome(
            self._loop.time(),
            cluster.requests,
            phases,
            Counter(code.value for code in cluster.causes.values()),
            Counter(code.value for key, code in cluster.causes.items() if key in pre_runs),
            self._disturbances.counts | cluster.checkpoints.counts | cluster.control_plane.counts,
            cluster.controllers.compared,
            cluster.controllers.left_out,
            cluster.digest.hexdigest(),
        )

    async def _disturb(self, busy_s: float) -> None:
        cluster, disturbances = self._cluster, self._disturbances
        await self._publish()
        disturbances.draw_faults(cluster.faults)
        await disturbances.take_over()
        while self._loop.time() < busy_s:
            await asyncio.sleep(disturbances.pause_s())
            self._check()
            await disturbances.happen()

    async def _settle(self) -> None:
        cluster = self._cluster
        is_listed = await self._disturbances.end()
        for replica in [each for each in cluster.replicas if each is not cluster.leader]:
            await cluster.end_replica(replica)
        async for _ in self._disturbances.crash_ranks(self._disturbances.emphasis.crashing_s):
            self._check()
            if cluster.leader is None:
                await self._disturbances.take_over()
        deadlines = Deadlines()
        still, before = 0, 0
        cluster.checks.count_costs()
        for number in range(ROUNDS_MAX):
            if number == PROMPT_ROUNDS and is_listed:
                self._expects_findings = False
                active = [job for job in cluster.users.jobs if not job["spec"].get("suspend")]
                uids = [job["metadata"]["uid"] for job in active]
                invariants.check_wanted(cluster.checker.cluster.ledger, uids)
            if cluster.leader is None:
                if number > PROMPT_ROUNDS:
                    raise ViolationError("I14: a leader ended, and nothing fails any more")
                await self._disturbances.take_over()
            await asyncio.sleep(ROUND_S)
            self._check()
            if is_listed:
                deadlines.check(cluster, now_s=self._loop.time())
            writes = cluster.writes
            # What has just happened, such as a list, can have writes to follow.
            still = still + 1 if writes == before and not self._unsettled() else 0
            before = writes
            if still >= STILL_ROUNDS and number >= PROMPT_ROUNDS:
                down = cluster.machines.down
                stuck = self._disturbances.foreign.attempts_on(down)
                check_rest(cluster.checker, down=down, stuck=stuck)
                if is_listed:
                    cluster.checks.check_costs()
                await self._rest()
                for violation in cluster.checker.trail.violations:
                    raise ViolationError(str(violation))
                break
        else:
            raise ViolationError(f"I5: no rest after {ROUNDS_MAX * ROUND_S} s: {self._unsettled()}")
        await self._publish()

    async def _publish(self) -> None:
        """I31: where nothing fails, all that the sources say is published."""
        controllers = self._cluster.controllers
        controllers.release()
        for _ in range(ROUNDS_MAX):
            if not controllers.unpublished():
                return
            await asyncio.sleep(ROUND_S)
            self._check()
        raise ViolationError(f"I31: not published: {controllers.unpublished()}")

    async def _rest(self) -> None:
        """I20: a leader at rest writes nothing, and reads only what is due (``reads``)."""
        cluster, writes = self._cluster, self._cluster.writes
        cluster.reads.begin()
        await asyncio.sleep(self._rest_s)
        self._check()
        if cluster.leader is None:
            raise ViolationError("I14: a leader ended, and nothing fails any more")
        if cluster.writes != writes:
            found = cluster.trace[-1]
            raise ViolationError(f"I20: at rest, and within {self._rest_s} s it was not: {found}")
        cluster.reads.check(seconds=self._rest_s)

    def _check(self) -> None:
        if isinstance(self._broken, ViolationError):
            raise self._broken
        if self._broken is not None:
            raise AssertionError(repr(self._broken)) from self._broken

    def _unsettled(self) -> list[str]:
        """What has yet to happen, were nothing to fail."""
        cluster = self._cluster
        jobs = {job["metadata"]["uid"]: job for job in cluster.users.jobs}
        stuck, waiting = list[str](), list[Mapping[str, Any]]()
        for job in sorted(cluster.checker.cluster.jobs.values(), key=self._queue_order):
            phase, spec = job.record.phase, jobs[job.uid]["spec"]
            if phase in FINAL:
                continue
            if cluster.leader is not None and has_expiring_failure(
                spec,
                job.status,
                now_s=cluster.leader.parts.runtime.wall_clock(),
                within_s=self._rest_s,
            ):
                stuck.append(f"a failure of {job.name} leaves its window soon")
            if spec.get("suspend") and phase is Phase.SUSPENDED:
                continue
            if phase is Phase.QUEUED and not spec.get("suspend"):
                if is_active(job.status) and "activeDeadlineSeconds" in spec:
                    stuck.append(f"{job.name} has yet to reach its deadline")
                elif not self._names_are_taken(job):
                    waiting.append(spec)
                if job.status.get("reason", "Queued") in NO_REASONS:
                    stuck.append(f"{job.name} waits without a reason")
            else:
                stuck.append(f"{job.name} is {phase}")
            if job.observed != job.generation:
                stuck.append(f"{job.name} was changed, and its status is of before")
        stuck += cluster.controllers.unsettled()
        if cluster.leader is not None:
            # Until a list finds what a watch has lost.
            stuck += cluster.checks.stale_caches(cluster.leader)
        # Behind one that the ready nodes could hold, others may wait for what it has reserved.
        first = next((spec for spec in waiting if self._fits(spec, is_empty=True)), None)
        if first is not None and self._fits(first):
            stuck.append("a job waits, and enough nodes are free")
        return stuck

    def _queue_order(self, job: Job) -> tuple[str, str]:
        metadata = next(
            found["metadata"]
            for found in self._cluster.users.jobs
            if found["metadata"]["uid"] == job.uid
        )
        return metadata["creationTimestamp"], job.uid

    def _names_are_taken(self, job: Job) -> bool:
        """Whether pods of an earlier job of its name cannot go, as their nodes are down."""
        is_taken = job.status.get("reason") == "PodNamesTaken"
        down = self._cluster.machines.down
        name = job.name.partition("/")[2]
        pods = self._cluster.checker.cluster.pods.values()
        return is_taken and any(
            pod.node in down and pod.name.startswith(f"{name}-") and pod.job_uid != job.uid
            for pod in pods
        )

    def _fits(self, spec: Mapping[str, Any], *, is_empty: bool = False) -> bool:
        """Whether the ready nodes that are not cordoned could hold all pods of a job, largest
        first, each on the fullest node that holds it and no other of its role; or, if the cluster
        ``is_empty``, could then."""
        cluster = self._cluster
        free = {}
        for node in cluster.server.objects("/api/v1/nodes"):
            is_ready = node["status"]["conditions"][0]["status"] == "True"
            if is_ready and not node["spec"].get("unschedulable"):
                free[node["metadata"]["name"]] = int(node["status"]["allocatable"][GPU])
        for pod in cluster.server.objects("/api/v1/pods"):
            name, phase = pod["spec"].get("nodeName"), pod["status"].get("phase")
            if name in free and phase not in ("Succeeded", "Failed") and not is_empty:
                free[name] -= gpus_of(pod)
        roles = [(gpus_of({"spec": r["template"]["spec"]}), r["replicas"]) for r in spec["roles"]]
        for gpus, replicas in sorted(roles, reverse=True):
            holding = sorted((n for n in free if free[n] >= gpus), key=free.__getitem__)
            if len(holding) < replicas:
                return False
            for name in holding[:replicas]:
                free[name] -= gpus
        return True
