"""Actions of users, machines and other clients on a cluster, with frequencies drawn by each
seed."""

from __future__ import annotations

from dataclasses import replace

from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.ledger import EntryRole
from railwright_scheduler.invariants import PodFact
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.contenders import Faults
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.objects import FOREIGN, ORPHANED, JobObject, NodeObject
from railwright_scheduler.simulator.seeded_random import SeededRandom

GPU = "nvidia.com/gpu"
DEVICES = 8
FOREIGN_DEVICES = 4
NODES_MAX = 5
CUT_S_MAX = 500
FAILURE_POLICIES = tuple(
    FailurePolicy(limit, window_s)
    for limit, window_s in ((0, 300), (1, 400), (1, 86_400), (6, 86_400))
)
DEADLINES_S = (None, 1, 5, 60, 400)
NAMES = ("a", "b", "c", "d")

ALWAYS = {
    "act": 90,
    "watch": 50,
    "late": 2,
    "time": 12,
    "kubelet": 24,
    "collect": 8,
    "node controller": 4,
}
SOMETIMES = {
    "watch cut": 2,
    "watch missed": 1,
    "crash": 2,
    "pause": 4,
    "resume": 2,
    "take over": 2,
    "rank crash": 2,
    "pod deleted": 2,
    "node down": 2,
    "node up": 2,
    "node removed": 1,
    "node added": 1,
    "node resized": 1,
    "foreign pod": 2,
    "pod labelled": 2,
    "suspend": 2,
    "resume job": 2,
    "job deleted": 2,
    "job replaced": 3,
    "job reshaped": 2,
    "refuse": 1,
    "inflate": 1,
    "allow": 1,
}


CUTS = {"cut": 1, "cut healed": 2}
ORPHANS = {"orphaned pod": 8}


class Disturbances:
    """The users' and the machines' part of a run. With ``cuts`` the control plane is cut off from
    all nodes now and then, with ``orphans`` pods of no known job are bound beside others. With
    ``roles_rng`` some jobs have a second role, drawn by it;
    ``deadlines`` draws how long jobs may be active."""

    def __init__(
        self,
        rng: SeededRandom,
        api: Api,
        machines: Machines,
        *,
        cuts: bool = False,
        orphans: bool = False,
        roles_rng: SeededRandom | None = None,
        deadlines: SeededRandom | None = None,
    ) -> None:
        self._random = rng
        self._roles_random = roles_rng
        self._api = api
        self._machines = machines
        self._deadlines = deadlines
        self._made = 0
        self.weights = ALWAYS | {
            name: weight * rng.pick((0, 0, 1, 4)) for name, weight in SOMETIMES.items()
        }
        self.weights |= (CUTS if cuts else {}) | (ORPHANS if orphans else {})
        # Without these nothing would ever start.
        self.weights |= {
            "job created": rng.pick((2, 8)),
            "take over": max(1, self.weights["take over"]),
        }
        self._names = NAMES[: rng.pick((1, 2, len(NAMES)))]
        self.faults = Faults(
            lost_permille=rng.pick((0, 0, 20, 200)), blind_permille=rng.pick((0, 0, 500))
        )
        self._failure_policy = rng.pick(FAILURE_POLICIES)
        for index in range(2 + rng.below(NODES_MAX - 1)):
            self._add_node(f"n{index}")

    def act(self, event: str, *, now_s: int) -> str:
        """Act on an object if there is one; return its name."""
        if event in ("kubelet", "collect", "pod deleted", "pod labelled", "rank crash"):
            return self._to_a_pod(event)
        if event == "foreign pod":
            return self._create_foreign()
        if event == "orphaned pod":
            return self._create_orphan()
        if event.startswith("cut"):
            return self._to_the_network(event, now_s=now_s)
        if event.startswith("node"):
            return self._to_a_node(event, now_s=now_s)
        if event == "job created":
            return self._create_job(now_s=now_s)
        return self._to_a_job(event, now_s=now_s)

    def end(self) -> None:
        """No more faults; every second time all nodes come back, else the dead stay dead."""
        self._api.refused.clear()
        self._api.inflated.clear()
        self._machines.heal()
        if self._random.happens(500):
            for name in list(self._machines.down_since_s):
                self._machines.restore(name, rebooted=self._random.happens(500))

    def pass_time(self, *, now_s: int) -> None:
        """No cut lasts longer than attempts are held for."""
        since_s = self._machines.cut_since_s
        if since_s is not None and now_s - since_s > CUT_S_MAX:
            self._machines.heal()

    def _to_the_network(self, event: str, *, now_s: int) -> str:
        if event == "cut":
            self._machines.cut(now_s=now_s)
        else:
            self._machines.heal()
        return "off" if event == "cut" else "over"

    def _to_a_pod(self, event: str) -> str:
        placements = list(self._api.placements.objects)
        if event == "collect" and placements and self._random.happens(300):
            self._machines.collect_placement(self._random.pick(placements))
            return ""
        pods = list(self._api.pods.objects.values())
        if not pods:
            return ""
        pod = self._random.pick(pods)
        if event == "kubelet":
            self._machines.kubelet(pod, may_end=self._random.happens(100))
        elif event == "collect":
            self._machines.collect(pod)
        elif event == "pod deleted":
            self._api.remove_pod(pod)
        elif event == "pod labelled":
            self._api.pods.put(pod.uid, pod)
        else:
            self._machines.crash(pod, exit_code=self._random.pick((1, 137, None)))
        return pod.name

    def _to_a_node(self, event: str, *, now_s: int) -> str:
        nodes = self._api.nodes.objects
        if event == "node added":
            missing = [f"n{index}" for index in range(NODES_MAX) if f"n{index}" not in nodes]
            added = [self._random.pick(missing)] if missing else []
            for name in added:
                self._add_node(name)
            return "".join(added)
        if not nodes:
            return ""
        node = self._random.pick(list(nodes.values()))
        if event == "node down":
            self._machines.fail(node.name, now_s=now_s)
        elif event == "node up":
            self._machines.restore(node.name, rebooted=self._random.happens(500))
        elif event == "node controller":
            self._machines.watch_node(node)
        elif event == "node resized":
            smaller = node.allocatable[GPU] == DEVICES
            self._api.nodes.put(
                node.name, replace(node, allocatable={GPU: DEVICES // 2 if smaller else DEVICES})
            )
            self._api.others_took()
        elif len(nodes) > 1:
            self._api.nodes.remove(node.name)
            self._api.note_death(node.name)
            self._machines.down_since_s.pop(node.name, None)
        return node.name

    def _to_a_job(self, event: str, *, now_s: int) -> str:
        jobs = list(self._api.jobs.objects.values())
        if not jobs:
            return ""
        job = self._random.pick(jobs)
        if event == "refuse":
            self._api.refused[job.uid, self._random.below(job.num_pods)] = True
        elif event == "inflate":
            self._api.inflated[job.uid] = True
        elif event == "allow":
            self._api.refused.clear()
            self._api.inflated.clear()
        elif event == "job deleted":
            self._api.jobs.remove(job.uid)
        elif event == "job replaced":
            self._api.jobs.remove(job.uid)
            self._make_job(job.name, now_s=now_s)
        elif event == "job reshaped":
            self._reshape(job)
        else:
            self._api.jobs.put(job.uid, replace(job, suspend=event == "suspend"))
        return job.uid

    def _reshape(self, job: JobObject) -> None:
        """A job is suspended, and its shape changed; it may be resumed in the same write."""
        suspended = replace(job, suspend=True)
        changed = replace(
            suspended,
            roles=self._roles(),
            suspend=self._random.happens(500),
        )
        self._api.jobs.put(job.uid, suspended)
        self._api.jobs.put(job.uid, changed)

    def _roles(self) -> tuple[EntryRole, ...]:
        """The pods of a job: of one role, or of a second one of smaller pods too."""
        replicas, devices = 1 + self._random.below(3), self._random.pick((4, 8))
        first = EntryRole("worker", replicas, {GPU: devices})
        if self._roles_random is None or self._roles_random.below(2):
            return (first,)
        replicas, devices = 1 + self._roles_random.below(2), self._roles_random.pick((0, 4))
        return first, EntryRole("evaluator", replicas, {GPU: devices})

    def _create_foreign(self) -> str:
        """Another scheduler binds a pod to a node with capacity in its own cache."""
        fitting = [
            node.name
            for node in self._api.nodes.objects.values()
            if node.ready and self._used(node.name) + FOREIGN_DEVICES <= node.allocatable[GPU]
        ]
        if not fitting:
            return ""
        return self._bind("foreign", FOREIGN, self._random.pick(fitting), FOREIGN_DEVICES)

    def _create_orphan(self) -> str:
        """Someone binds a pod with the labels of a job that does not exist, where another runs."""
        taken = [pod.node for pod in self._api.pods.objects.values() if pod.live]
        there = [name for name in taken if name in self._api.nodes.objects]
        if not there:
            return ""
        return self._bind("orphaned", ORPHANED, self._random.pick(there), DEVICES)

    def _bind(self, kind: str, job_uid: str, node: str, devices: int) -> str:
        self._made += 1
        name = f"{kind}{self._made}"
        pod = PodFact(name, name, job_uid, self._made, 0, {GPU: devices}, node=node)
        self._api.pod_names[name] = name
        self._api.pods.put(name, pod)
        self._api.others_took()
        return f"{name} on {node}"

    def _used(self, node: str) -> int:
        pods = self._api.pods.objects.values()
        return sum(pod.amounts[GPU] for pod in pods if pod.live and pod.node == node)

    def _create_job(self, *, now_s: int) -> str:
        taken = [job.name for job in self._api.jobs.objects.values()]
        free = [name for name in self._names if name not in taken]
        if not free:
            return ""
        return self._make_job(self._random.pick(free), now_s=now_s)

    def _make_job(self, name: str, *, now_s: int) -> str:
        self._made += 1
        uid = f"{name}@{self._made}"
        job = JobObject(
            uid=uid,
            name=name,
            roles=self._roles(),
            failure_policy=self._failure_policy,
            active_deadline_s=None
            if self._deadlines is None
            else self._deadlines.pick(DEADLINES_S),
            submitted_s=now_s,
            wants_pre_run=self._api.pre_runs.is_wanted(),
        )
        self._api.jobs.put(uid, job)
        return uid

    def _add_node(self, name: str) -> None:
        self._api.nodes.put(name, NodeObject(name, {GPU: DEVICES}, capacity={GPU: DEVICES}))
        self._api.others_took()
