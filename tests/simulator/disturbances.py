"""What happens to a simulated cluster, at times and with frequencies drawn by the seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

from railwright_kube import paths
from simulator.api_server import ApiServer
from simulator.emphasis import Emphasis, draw_weights
from simulator.foreign_pods import DEVICES, ForeignPods
from simulator.launchers import Launchers
from simulator.links import LinkFaults
from simulator.simulated_cluster import REPLICAS_MAX, SimulatedCluster
from simulator.statuses import StatusError
from simulator.training import Training
from simulator.webhook import Webhook

CUT_S_MAX = 500
STALL_S_MAX = 40
CRASH_PAUSES_S = (20.0, 80.0, 200.0)
"""Mean times between two crashes when nothing else fails: a job spends its budget, or its failures
leave the window."""

LEADERLESS_S = 15.0
"""A standby gets the Lease after this time without a leader, if nothing gave it to it before."""


class Disturbances:
    """Faults, and what users do, drawn by a seed."""

    def __init__(self, cluster: SimulatedCluster, emphasis: Emphasis, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.foreign = ForeignPods(cluster, rng)
        self._webhook = Webhook(cluster.server, rng)
        self._nodes = 0
        self.emphasis = emphasis
        weights = draw_weights(emphasis, rng)
        self._names, self._weights = [*weights], [*weights.values()]
        self._pause_s = rng.choice(self.emphasis.pauses_s)
        self._blind = rng.choice(self.emphasis.blind)
        self._led_s = 0.0
        cluster.users.draw(emphasis, names=rng.choice(emphasis.jobs))
        cluster.checkpoints.torn, cluster.checkpoints.late = emphasis.torn, emphasis.late_commits
        cluster.workloads.declared = emphasis.workloads
        cluster.workloads.pre_runs = emphasis.pre_runs
        for _ in range(rng.choice(emphasis.nodes)):
            self._add_node()
        self.counts: dict[str, int] = {}
        self._act = self._events()

    def draw_faults(self, faults: LinkFaults) -> None:
        """How often requests and watches fail in this run."""
        self.emphasis.draw_faults(faults, self._rng)

    def pause_s(self) -> float:
        """Until the next event."""
        return self._rng.expovariate(1 / self._pause_s)

    async def happen(self) -> None:
        """One of the events happens, if it can."""
        event = self._rng.choices(self._names, self._weights)[0]
        now_s = self._cluster.loop.time()
        leader = self._cluster.leader
        if leader is not None and not leader.paused:
            self._led_s = now_s
        elif now_s - self._led_s > LEADERLESS_S:
            event = "take over"
        done = self._act[event]()
        if isinstance(done, Awaitable):
            done = await done
        if done:
            self.counts[event] = self.counts.get(event, 0) + 1
            self._cluster.note(f"{event} {done}")

    async def end(self) -> bool:
        """No more faults. In half of the runs all nodes come back, else the dead stay dead; in half
        of them, which are returned as True, all that is watched is listed anew, else lost events
        stay lost."""
        cluster, machines = self._cluster, self._cluster.machines
        cluster.faults.end()
        self._webhook.allow()
        cluster.control_plane.collected = 1.0
        machines.heal()
        if self._rng.random() < 0.5:
            for name in machines.down:
                machines.restore(name)
        is_listed = self._rng.random() < 0.5
        for replica in cluster.replicas:
            replica.resume()
            if is_listed:
                replica.expire_watches()
        self.foreign.end()
        await cluster.controllers.end()
        return is_listed

    async def crash_ranks(self, seconds: float) -> AsyncIterator[None]:
        """Crash a rank of a job that trains, again and again for so long."""
        loop, pause_s = self._cluster.loop, self._rng.choice(CRASH_PAUSES_S)
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            await asyncio.sleep(self._rng.expovariate(1 / pause_s))
            self._cluster.note(f"rank crash {self._rank_crash()}")
            yield

    def _add_node(self) -> str:
        """A new node joins, or one that was removed, again."""
        there = self._cluster.machines.names
        missing = [name for at in range(self._nodes) if (name := f"n{at}") not in there]
        name = self._rng.choice([*missing, f"n{self._nodes}"])
        self._nodes += name not in missing
        self._cluster.machines.add(name, gpus=DEVICES)
        return name

    async def _crash(self) -> str:
        replicas = self._cluster.replicas
        if not replicas:
            return ""
        replica = self._rng.choice(replicas)
        await self._cluster.end_replica(replica)
        return replica.name

    def _pause(self) -> str:
        replicas = [each for each in self._cluster.replicas if not each.has_ended]
        if not replicas:
            return ""
        replica = self._rng.choice(replicas)
        replica.pause()
        return replica.name

    def _resume(self) -> str:
        paused = [each for each in self._cluster.replicas if each.paused]
        if not paused:
            return ""
        replica = self._rng.choice(paused)
        replica.resume()
        return replica.name

    async def take_over(self) -> str:
        """Another replica gets the Lease. The one before finds that out at once, or is blind."""
        cluster = self._cluster
        for ended in [each for each in cluster.replicas if each.has_ended]:
            await cluster.end_replica(ended)
        leading = [each for each in cluster.replicas if each.is_leader]
        waiting = [each for each in cluster.replicas if not each.is_leader]
        if len(cluster.replicas) >= REPLICAS_MAX and leading:
            await cluster.end_replica(leading.pop(0))
        replica = self._rng.choice(waiting) if waiting else cluster.start_replica()
        for before in leading:
            if self._rng.random() >= self._blind:
                before.lose()
        replica.lead()
        cluster.holder = replica
        return replica.name

    def _lose(self) -> str:
        """A blind leader finds out."""
        leading = [each for each in self._cluster.replicas if each.is_leader]
        if len(leading) < 2:
            return ""
        blind = next(each for each in leading if each is not self._cluster.leader)
        blind.lose()
        return blind.name

    def _rank_crash(self) -> str:
        training = self._training()
        if training is None:
            return ""
        rank = self._rng.choice(sorted(training.started))
        training.failing[rank] = self._rng.choice((1, 137))
        return f"{training.key} rank {rank}"

    def _hang(self) -> str:
        training = self._training()
        if training is None:
            return ""
        training.hung_since_s = self._cluster.loop.time()
        return str(training.key)

    def _save(self) -> str:
        training = self._training()
        if training is None:
            return ""
        training.saving_until_s = self._cluster.loop.time() + self._rng.choice((5, 200))
        return str(training.key)

    def _training(self) -> Training | None:
        launchers: Launchers = self._cluster.launchers
        complete = [each for each in launchers.trainings.values() if each.is_complete]
        found = [each for each in complete if self._is_live(each)]
        return self._rng.choice(found) if found else None

    def _is_live(self, training: Training) -> bool:
        uid, attempt = training.key
        job = self._cluster.checker.cluster.jobs.get(uid)
        return job is not None and job.record.live and job.record.attempt == attempt

    def _delete_pod(self) -> str:
        pods = self._server.objects(paths.PODS)
        if not pods:
            return ""
        pod = self._rng.choice(pods)["metadata"]
        self._request("DELETE", paths.pod(pod["namespace"], pod["name"]))
        return str(pod["name"])

    def _evict_pod(self) -> str:
        """Somebody drains: a pod is deleted by the Eviction API."""
        pods = self._server.objects(paths.PODS)
        if not pods:
            return ""
        pod = self._rng.choice(pods)
        self._cluster.control_plane.delete(pod, "EvictionByEvictionAPI")
        return str(pod["metadata"]["name"])

    def _press(self) -> str:
        """A node runs out of memory or disk, and its kubelet evicts a pod."""
        machines, pods = self._cluster.machines, self._server.objects(paths.PODS)
        running = [p for p in pods if p["status"].get("phase") == "Running"]
        if not running:
            return ""
        pod = self._rng.choice(running)
        return str(pod["metadata"]["name"]) if machines.evict(pod) else ""

    def _touch_pod(self) -> str:
        """Somebody annotates a pod."""
        pods = self._server.objects(paths.PODS)
        if not pods:
            return ""
        pod = self._rng.choice(pods)["metadata"]
        annotations = {"touched": str(self._cluster.loop.time())}
        body = {"metadata": {"annotations": annotations}}
        self._request("PATCH", paths.pod(pod["namespace"], pod["name"]), body)
        return str(pod["name"])

    def _stall(self) -> str:
        """The watches of a replica deliver nothing for a while."""
        replicas = [each for each in self._cluster.replicas if each.is_leader]
        if not replicas:
            return ""
        replica = self._rng.choice(replicas)
        expires = self._rng.random() < 0.4
        replica.stall_watches(self._rng.uniform(1, STALL_S_MAX), expires=expires)
        return replica.name

    def _node(self, act: Callable[[str], None]) -> str:
        found = self._cluster.machines.names
        if not found:
            return ""
        name = self._rng.choice(found)
        act(name)
        return name

    def _restore(self) -> str:
        down = self._cluster.machines.down
        if not down:
            return ""
        name = self._rng.choice(down)
        self._cluster.machines.restore(name)
        return name

    def _compact(self) -> str:
        self._server.compact()
        return "all"

    def _cut(self) -> str:
        self._cluster.machines.cut()
        self._cluster.loop.call_later(self._rng.uniform(0, CUT_S_MAX), self._cluster.machines.heal)
        return "all nodes"

    def _heal(self) -> str:
        self._cluster.machines.heal()
        return "all nodes"

    @property
    def _server(self) -> ApiServer:
        return self._cluster.server

    def _request(self, method: str, path: str, body: Any = None) -> None:
        try:
            self._server.request(method, path, body)
        except StatusError:
            return

    def _events(self) -> dict[str, Callable[[], str | Awaitable[str]]]:
        machines, users = self._cluster.machines, self._cluster.users
        return {
            "crash": self._crash,
            "pause": self._pause,
            "resume": self._resume,
            "take over": self.take_over,
            "lose": self._lose,
            "rank crash": self._rank_crash,
            "hang": self._hang,
            "save": self._save,
            "pod deleted": self._delete_pod,
            "node down": lambda: self._node(partial(machines.fail, is_cut=False)),
            "node cut": lambda: self._node(partial(machines.fail, is_cut=True)),
            "node up": self._restore,
            "node removed": lambda: self._node(machines.remove),
            "node added": self._add_node,
            "node resized": lambda: self._node(
                partial(machines.resize, gpus=self._rng.choice((0, 4, 8)))
            ),
            "node cordoned": lambda: self._node(partial(machines.cordon, unschedulable=True)),
            "node uncordoned": lambda: self._node(partial(machines.cordon, unschedulable=False)),
            "node pressure": self._press,
            "pod evicted": self._evict_pod,
            "foreign pod": self.foreign.create,
            "orphaned pod": self.foreign.create_orphan,
            "kubelet stalls": lambda: self._node(
                partial(machines.stall, seconds=self._rng.uniform(1, STALL_S_MAX))
            ),
            "suspend": users.suspend,
            "resume job": users.resume,
            "job created": users.create,
            "job deleted": users.delete,
            "job replaced": users.replace,
            "job reshaped": users.reshape,
            "profiling changed": users.change_profiling,
            "refuse": partial(self._webhook.choose_job, "refuse"),
            "inflate": partial(self._webhook.choose_job, "inflate"),
            "allow": self._webhook.allow,
            "compact": self._compact,
            "watches stall": self._stall,
            "pod touched": self._touch_pod,
            "cut": self._cut,
            "heal": self._heal,
            **self._cluster.controllers.events(self.emphasis.uplinks),
        }
