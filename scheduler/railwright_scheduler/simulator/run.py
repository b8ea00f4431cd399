"""Run the cluster by a seed: first with faults, then without, until it comes to rest.

Problem: commits break by rare orders of events: a leader paused between a check and a write, a job
created again under its old name, a delete whose response is lost. They cannot all be listed.

Idea (VOPR of TigerBeetle, BUGGIFY of FoundationDB): everything runs in one thread; each write, each
event of a watch and each action of a machine is one step, and the random source picks the next one.
Each seed also draws the frequency of each fault, most of them zero in most runs, so that rare
combinations occur. The invariants are checked after every write. In the second phase there are no
faults, and the cluster must come to rest (I5): every job has ended, is suspended, or waits for
nodes that do not exist. A failure is a seed.

Not done: a search of all orders (40,887 states for two gangs on two nodes; too many beyond), and
shrinking: seeds with few nodes and jobs are drawn often enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railwright_scheduler import invariants
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.invariants import ViolationError
from railwright_scheduler.model.snapshot import Amounts
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.checkpoints import Checkpoints
from railwright_scheduler.simulator.contenders import Contenders
from railwright_scheduler.simulator.disturbances import GPU, Disturbances
from railwright_scheduler.simulator.hangs import Hangs
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.network import Network
from railwright_scheduler.simulator.objects import JobObject
from railwright_scheduler.simulator.profiling import PreRuns
from railwright_scheduler.simulator.seeded_random import SeededRandom, Wheel

ROUNDS_MAX = 300
ROUND_S = 5
PROMPT_ROUNDS = 3
"""By then every leader has read the ledger, and the next one has run a cycle."""
CHANGED_ROUNDS = 40
CHANGED_ROUND_S = 40
"""While jobs run in peace, and only what is known of links changes, or ranks hang."""
DEADLINE_SLACK_S = 60
"""How much later than its deadline a job may fail, where time passes in jumps of up to 40 s."""
LONG_S = 10_000
"""Longer than any deadline: what rests is not waiting for one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run went through: its steps, the writes that landed, the jobs that were moved, the
    attempts that ended as hung, how often a pre-run ended for which cause, the jobs that succeeded,
    failed, and failed by their deadline, the groups that resumed from a checkpoint, and how often
    what was done."""

    steps: int
    writes: int
    moves: int
    hangs: int
    pre_runs: dict[str, int]
    succeeded: int
    failed: int
    overran: int
    resumed: int
    counts: dict[str, int]


class RunError(AssertionError):
    """A run that broke an invariant; the message ends with the last things that happened."""


def run(
    seed: int,
    *,
    steps: int,
    links: bool = False,
    hangs: bool = False,
    crashes: bool = False,
    cuts: bool = False,
    pre_runs: bool = False,
    roles: bool = False,
    deadlines: bool = False,
    checkpoints: bool = False,
    orphans: bool = False,
) -> Outcome:
    """One whole run. Raises RunError, with the seed and the trace, when an invariant breaks.

    With ``links`` there are jobs that wait for links, of which something else is found out now and
    then, by a random source of its own. With ``hangs`` ranks report their steps, and some hang.
    With ``crashes`` ranks crash again and again, once the other faults are over. With ``cuts`` the
    control plane is cut off from all nodes now and then. With ``pre_runs`` most jobs want one. With
    ``roles`` some jobs have two roles. With ``deadlines`` most jobs have one, and ranks crash too.
    With ``checkpoints`` some jobs have two roles, each group saves and resumes, and ranks crash.
    With ``orphans`` some jobs have two roles, and pods of no known job are bound beside others.
    """
    crashes = crashes or checkpoints or (deadlines and not hangs)
    simulation = _Simulation(
        SeededRandom(seed),
        Network(SeededRandom(~seed)) if links else Network(),
        Hangs(SeededRandom(~seed), crashes=crashes) if hangs or crashes else Hangs(),
        PreRuns(SeededRandom(~seed)) if pre_runs else PreRuns(),
        cuts=cuts,
        orphans=orphans,
        deadlines=SeededRandom(seed ^ 2) if deadlines else None,
        # How often a job hung without a later checkpoint is not seen in what is stored.
        clocks=None if hangs else SeededRandom(seed ^ 1),
        roles_rng=SeededRandom(~seed) if roles or checkpoints or orphans else None,
        checkpoints=Checkpoints(SeededRandom(seed ^ 3)) if checkpoints else Checkpoints(),
    )
    try:
        simulation.disturb(steps)
        simulation.settle()
    except (ViolationError, AssertionError) as broken:
        trace = "\n".join(simulation.trace[-60:])
        raise RunError(f"seed {seed}: {broken}\n{trace}") from broken
    return simulation.outcome()


class _Simulation:
    def __init__(
        self,
        rng: SeededRandom,
        network: Network,
        hangs: Hangs,
        pre_runs: PreRuns,
        *,
        cuts: bool,
        orphans: bool,
        deadlines: SeededRandom | None,
        clocks: SeededRandom | None,
        roles_rng: SeededRandom | None,
        checkpoints: Checkpoints,
    ) -> None:
        self._random = rng
        self._api = Api()
        self._api.network = network
        self._api.hangs = hangs
        self._api.pre_runs = pre_runs
        self._api.checkpoints = checkpoints
        self._machines = Machines(self._api)
        self._disturbances = Disturbances(
            rng,
            self._api,
            self._machines,
            cuts=cuts,
            orphans=orphans,
            roles_rng=roles_rng,
            deadlines=deadlines,
        )
        self._contenders = Contenders(
            self._api, self._machines, rng, self._disturbances.faults, clocks=clocks
        )
        self._now_s = 0
        self._checked = 0
        self._steps = 0
        self._active_since_s: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.trace: list[str] = []

    def outcome(self) -> Outcome:
        phases = [job.record.phase for job in self._api.jobs.objects.values()]
        return Outcome(
            steps=self._steps,
            writes=self._api.writes,
            moves=sum(cause.code is CauseCode.REMAPPED for cause in self._api.revoked.values()),
            hangs=sum(cause.code is CauseCode.HUNG for cause in self._api.revoked.values()),
            pre_runs=Counter(
                cause.code.value
                for key, cause in self._api.revoked.items()
                if key in self._api.profiling
            ),
            succeeded=phases.count(Phase.SUCCEEDED),
            failed=phases.count(Phase.FAILED),
            overran=sum(
                cause.code is CauseCode.DEADLINE_EXCEEDED for cause in self._api.revoked.values()
            ),
            resumed=self._api.checkpoints.resumed,
            counts=self._counts,
        )

    def disturb(self, steps: int) -> None:
        """Anything may happen."""
        wheel = Wheel(self._disturbances.weights)
        for _ in range(steps):
            self._step(wheel.pick(self._random))

    def settle(self) -> None:
        """Nothing fails any more; late requests still arrive."""
        self._disturbances.end()
        for event in self._contenders.flush():
            self._note(f"late {event}")
        lasts = self._api.network.lasts or self._api.hangs.lasts
        for _ in range(CHANGED_ROUNDS if lasts else 0):
            self._round(CHANGED_ROUND_S)
            self._note(self._pass_time())
        self._api.network.lasts = False
        self._api.hangs.end()
        for number in range(ROUNDS_MAX):
            if number == PROMPT_ROUNDS:
                invariants.check_wanted(self._api.ledger, self._wanted())
            still = self._is_still(ROUND_S) and number >= PROMPT_ROUNDS
            if still and not self._unsettled():
                self._contenders.check_rest()
                invariants.check_rest(self._api.facts())
                if not self._is_still(LONG_S):
                    raise ViolationError(f"I20: at rest, and {LONG_S} s later it was not")
                return
        raise ViolationError(f"I5: no rest after {ROUNDS_MAX * ROUND_S} s: {self._unsettled()}")

    def _step(self, event: str) -> None:
        contenders = self._contenders
        if event == "act":
            done = contenders.act()
        elif event.startswith("watch"):
            done = contenders.watch(event)
        elif event == "late":
            done = contenders.late()
        elif event == "take over":
            done = contenders.take_over()
        elif event in ("crash", "pause", "resume"):
            done = contenders.hold_up(event)
        elif event == "time":
            self._now_s += 1 if self._random.below(20) else 1 + self._random.below(40)
            self._disturbances.pass_time(now_s=self._now_s)
            done = self._pass_time()
        else:
            done = self._disturbances.act(event, now_s=self._now_s)
        self._contenders.now_s = self._now_s
        self._steps += 1
        self._counts[event] = self._counts.get(event, 0) + 1
        if done:
            self._note(f"{event} {done}")

    def _pass_time(self) -> str:
        links = self._api.network.pass_time([*self._api.nodes.objects], now_s=self._now_s)
        training = self._machines.training()
        hangs = self._api.hangs.pass_time(training, now_s=self._now_s)
        crashing = self._api.hangs.crashing(training)
        for pod in [pod for pod in self._api.pods.objects.values() if pod.key in crashing][:1]:
            self._machines.crash(pod, exit_code=1)
            hangs += f"{pod.name} crashes"
        profiles = self._api.pre_runs.pass_time(self._api.jobs)
        checkpoints = self._save(training)
        return " ".join(each for each in (links, hangs, profiles, checkpoints) if each)

    def _save(self, training: Sequence[AttemptKey]) -> str:
        """Each attempt that trains may save checkpoints."""
        saved = []
        for placement in self._api.placements.objects.values():
            job = self._api.jobs.objects.get(placement.job_uid)
            if job is not None and placement.key in training:
                groups = [role.name for role in job.roles]
                key, resume = placement.key, placement.resume
                saved.append(self._api.checkpoints.pass_time(key, groups, resume))
        return " ".join(each for each in saved if each)

    def _is_still(self, time_s: int) -> bool:
        """Whether there are no requests and no changes in the round after this time.

        A round in which a leader was deposed is no rest: another one has to start.
        """
        before = self._contenders.writes_sent, self._api.writes
        self._round(time_s)
        now = self._contenders.writes_sent, self._api.writes
        return now == before and self._contenders.has_leader

    def _round(self, time_s: int) -> None:
        self._now_s += time_s
        self._contenders.now_s = self._now_s
        for event in self._contenders.one_turn():
            self._note(f"turn {event}")
        for pod in list(self._api.pods.objects.values()):
            self._machines.collect(pod)
        for name in list(self._api.placements.objects):
            self._machines.collect_placement(name)
        for pod in list(self._api.pods.objects.values()):
            self._machines.kubelet(pod, may_end=True)
        for node in list(self._api.nodes.objects.values()):
            self._machines.watch_node(node)
        self._check_deadlines()
        self._check()

    def _check_deadlines(self) -> None:
        """The other half of I25, while no leader is replaced: no job outlives its deadline."""
        active = {job.uid: job for job in self._api.jobs.objects.values() if job.is_active}
        since_s = {uid: self._active_since_s.get(uid, self._now_s) for uid in active}
        self._active_since_s = since_s
        for uid, job in active.items():
            lasts_s, deadline_s = self._now_s - since_s[uid], job.active_deadline_s
            if deadline_s is not None and lasts_s > deadline_s + DEADLINE_SLACK_S:
                raise ViolationError(f"I25: {uid} is active for {lasts_s} s: {job.record}")

    def _note(self, line: str) -> None:
        self.trace.append(f"{self._now_s:5d}s {line}")
        self._check()

    def _check(self) -> None:
        if self._api.writes != self._checked:
            self._checked = self._api.writes
            invariants.check(self._api.facts())

    def _wanted(self) -> list[str]:
        """The jobs that are there, and not suspended."""
        return [uid for uid, job in self._api.jobs.objects.items() if not job.suspend]

    def _unsettled(self) -> list[str]:
        """What has yet to happen, were nothing to fail."""
        jobs = self._api.jobs.objects
        stuck = [
            pod.name
            for pod in self._api.pods.objects.values()
            if not pod.terminal and not self._is_on_dead_node(pod.node)
        ]
        waiting = []
        for job in sorted(jobs.values(), key=lambda job: (job.submitted_s, job.uid)):
            if job.suspend and job.record.phase not in FINAL:
                if job.record.phase is not Phase.SUSPENDED:
                    stuck.append(f"{job.uid} is {job.record.phase}")
            elif job.is_active and job.active_deadline_s is not None:
                stuck.append(f"{job.uid} has yet to reach its deadline")
            elif job.record.phase is Phase.QUEUED:
                waiting.append(job)
            elif job.record.phase not in FINAL:
                stuck.append(f"{job.uid} is {job.record.phase}")
        # Behind one that the ready nodes could hold, others may wait for what it has reserved.
        first = next((job for job in waiting if self._fits(job, given={})), None)
        if first is not None and self._fits(first):
            stuck.append(f"{first.uid} waits, and enough nodes are free")
        reasons = self._contenders.waits
        stuck += [f"{job.uid} waits without a reason" for job in waiting if job.uid not in reasons]
        for entry in self._api.ledger.entries:
            if not any(
                pod.key == entry.key and self._is_on_dead_node(pod.node)
                for pod in self._api.pods.objects.values()
            ):
                stuck.append(f"{entry.job_uid}/{entry.attempt} is in the ledger")
        return stuck

    def _fits(self, job: JobObject, given: Mapping[str, Amounts] | None = None) -> bool:
        """Whether the ready nodes could hold all pods of the job beside what is ``given`` away, in
        truth: largest pods first, each on the fullest node that holds it and no other of its
        role."""
        given = invariants.given_away(self._api.facts()) if given is None else given
        free = {
            name: has[GPU] - given.get(name, {}).get(GPU, 0)
            for name, has in self._api.free().items()
            if self._api.nodes.objects[name].ready
        }
        for role in sorted(job.roles, key=lambda role: -role.per_pod[GPU]):
            holding = [name for name in free if free[name] >= role.per_pod[GPU]]
            if len(holding) < role.replicas:
                return False
            for name in sorted(holding, key=free.__getitem__)[: role.replicas]:
                free[name] -= role.per_pod[GPU]
        return True

    def _is_on_dead_node(self, node: str) -> bool:
        return node in self._machines.down_since_s and node in self._api.nodes.objects
