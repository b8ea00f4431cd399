"""Run the cluster by a seed: first everything that can fail does, then it must come to rest.

Problem: what breaks a commit is a rare order of events: a leader held up between a check and a
write, a job made again under its old name, a delete whose reply got lost. Nobody lists them all.

Idea (VOPR of TigerBeetle, BUGGIFY of FoundationDB): everything runs in one thread, each write, each
event of a watch and each act of a machine is one step, and chance picks the next. Each seed also
draws how often each fault comes, most of them never in most runs, so that rare mixes are met. The
invariants are asked after every write. In the second phase no fault comes any more, and the
cluster must come to rest (I5): every job ended, suspended, or waiting for nodes that are truly not
there. A failure is a seed.

Dropped: a search of all orders (40,887 states for two gangs on two nodes; not for more), and
shrinking: seeds with few nodes and jobs are drawn often enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from railwright_scheduler import invariants
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.invariants import ViolationError
from railwright_scheduler.simulator.api import Api, Guards
from railwright_scheduler.simulator.chance import Chance
from railwright_scheduler.simulator.contenders import Contenders
from railwright_scheduler.simulator.disturbances import Disturbances
from railwright_scheduler.simulator.machines import Machines

ROUNDS_MAX = 300
ROUND_S = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run went through: its steps, the writes that landed, and how often what was done."""

    steps: int
    writes: int
    succeeded: int
    counts: dict[str, int]


class RunError(AssertionError):
    """A run that broke an invariant; the message ends with the last things that happened."""


def run(seed: int, *, steps: int, guards: Guards | None = None) -> Outcome:
    """One whole run. Raises RunError, with the seed and the trace, when an invariant breaks."""
    simulation = _Simulation(Chance(seed), guards or Guards())
    try:
        simulation.disturb(steps)
        simulation.settle()
    except (ViolationError, AssertionError) as broken:
        trace = "\n".join(simulation.trace[-60:])
        raise RunError(f"seed {seed}: {broken}\n{trace}") from broken
    return simulation.outcome()


class _Simulation:
    def __init__(self, chance: Chance, guards: Guards) -> None:
        self._chance = chance
        self._api = Api(guards)
        self._machines = Machines(self._api)
        self._disturbances = Disturbances(chance, self._api, self._machines)
        self._contenders = Contenders(self._api, self._machines, guards)
        self._now_s = 0
        self._checked = 0
        self._steps = 0
        self._counts: dict[str, int] = {}
        self.trace: list[str] = []

    def outcome(self) -> Outcome:
        phases = [job.record.phase for job in self._api.jobs.objects.values()]
        return Outcome(
            steps=self._steps,
            writes=self._api.writes,
            succeeded=phases.count(Phase.SUCCEEDED),
            counts=self._counts,
        )

    def disturb(self, steps: int) -> None:
        """Anything may happen."""
        weights = self._disturbances.weights
        for _ in range(steps):
            self._step(self._chance.weighted(weights))

    def settle(self) -> None:
        """Nothing fails any more; late requests still arrive."""
        self._disturbances.end()
        for name, answer in self._contenders.flush():
            self._note(f"late {name}: {answer}")
        for _ in range(ROUNDS_MAX):
            writes = self._api.writes
            self._round()
            if self._api.writes == writes and not self._unsettled():
                invariants.check_rest(self._api.facts())
                return
        raise ViolationError(f"I5: no rest after {ROUNDS_MAX * ROUND_S} s: {self._unsettled()}")

    def _step(self, event: str) -> None:
        chance, contenders = self._chance, self._contenders
        if event == "act":
            done = contenders.act(chance, lost_permille=self._disturbances.lost_permille)
        elif event == "watch":
            done = contenders.watch(chance)
        elif event == "late":
            done = contenders.late(chance)
        elif event == "take over":
            done = contenders.take_over()
        elif event in ("crash", "pause", "resume"):
            done = contenders.hold_up(event, chance)
        elif event == "time":
            self._now_s += 1 if chance.below(20) else 1 + chance.below(40)
            done = ""
        else:
            done = self._disturbances.act(event, now_s=self._now_s)
        self._contenders.now_s = self._now_s
        self._steps += 1
        self._counts[event] = self._counts.get(event, 0) + 1
        if done:
            self._note(f"{event} {done}")

    def _round(self) -> None:
        self._now_s += ROUND_S
        self._contenders.now_s = self._now_s
        for name, answer in self._contenders.one_turn():
            self._note(f"turn {name}: {answer}")
        for pod in list(self._api.pods.objects.values()):
            self._machines.collect(pod)
        for pod in list(self._api.pods.objects.values()):
            self._machines.kubelet(pod, may_end=True)
        for node in list(self._api.nodes.objects.values()):
            self._machines.watch_node(node)
        self._check()

    def _note(self, line: str) -> None:
        self.trace.append(f"{self._now_s:5d}s {line}")
        self._check()

    def _check(self) -> None:
        if self._api.writes != self._checked:
            self._checked = self._api.writes
            invariants.check(self._api.facts())

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
            elif job.record.phase is Phase.QUEUED:
                waiting.append(job)
            elif job.record.phase not in FINAL:
                stuck.append(f"{job.uid} is {job.record.phase}")
        free = self._disturbances.free_nodes(waiting[0].per_node) if waiting else 0
        if waiting and free >= waiting[0].num_nodes:
            stuck.append(f"{waiting[0].uid} waits, and {free} nodes are free")
        reasons = self._contenders.waits
        stuck += [f"{job.uid} waits without a reason" for job in waiting if job.uid not in reasons]
        for entry in self._api.ledger.entries:
            if not any(
                pod.key == entry.key and self._is_on_dead_node(pod.node)
                for pod in self._api.pods.objects.values()
            ):
                stuck.append(f"{entry.job_uid}/{entry.attempt} is in the ledger")
        return stuck

    def _is_on_dead_node(self, node: str) -> bool:
        return node in self._machines.down_since_s and node in self._api.nodes.objects
