"""Launchers in the pods that run, which speak the real protocol with whichever replica answers."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, TypeVar

from history.invariants import ViolationError
from railwright import protocol
from railwright_api import names, routes
from railwright_kube.tokens import Bearer
from railwright_operator.write import rendering
from simulator.api_server import ApiServer
from simulator.checkpoints import Checkpoints
from simulator.machines import EXIT_TERMINATED, Machines
from simulator.replicas import Replica
from simulator.statuses import StatusError
from simulator.training import AttemptKey, Training
from simulator.virtual_loop import VirtualLoop
from simulator.workloads import Recording, Workloads
from simulator.world_checks import WorldChecks

Json = Mapping[str, Any]
Reply = TypeVar("Reply", protocol.Registered, protocol.HeartbeatAnswer, protocol.CommitAnswer)

EXIT_REVOKED = 80
TIMEOUT_S = 3.0
TICK_S = 1.0
LATE_COMMITS = 3
TERMINATIONS_S = (0.0, 0.0, 1.0, 5.0, 20.0)
"""How long ranks take to end after SIGTERM; then their launcher kills them."""

RESETS = 0.5
"""How often the peers of a rank that was ended fail, as their connections are reset."""


class _RevokedError(Exception):
    """The operator has ended the attempt."""


class Launchers:
    """All launchers. ``route`` is the replica that a connection reaches; None for none."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        machines: Callable[[], Machines],
        rng: Random,
        terminations: Random,
        *,
        route: Callable[[], Replica | None],
        total_steps: Callable[[str], int],
        workloads: Workloads,
        checks: WorldChecks,
        checkpoints: Checkpoints,
    ) -> None:
        self.checkpoints = checkpoints
        self._loop = loop
        self._server = server
        self._machines = machines
        self._rng = rng
        self._terminations = terminations
        self._living: dict[str, Launcher] = {}
        self._route = route
        self._total_steps = total_steps
        self._workloads = workloads
        self._checks = checks
        self._tasks: set[asyncio.Task[None]] = set()
        self.trainings: dict[AttemptKey, Training] = {}

    def start(self, pod: Json) -> None:
        """The containers of a pod run now."""
        labels = pod["metadata"].get("labels", {})
        if names.LABEL_JOB_UID not in labels or not _variables(pod):
            return
        member = protocol.Member(
            labels[names.LABEL_JOB_UID],
            int(labels[names.LABEL_ATTEMPT]),
            int(labels[names.LABEL_NODE_RANK]),
        )
        training = self._training(member, pod)
        if training is not None:
            task = self._loop.create_task(self._launch(member, pod, training))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    def _training(self, member: protocol.Member, pod: Json) -> Training | None:
        key = member.job_uid, member.attempt
        if key not in self.trainings:
            metadata = pod["metadata"]
            name = names.placement_name(metadata["labels"][names.LABEL_JOB_NAME], member.attempt)
            path = routes.one(names.PLACEMENTS, name, namespace=metadata["namespace"])
            try:
                nodes = self._server.request("GET", path)["spec"]["nodes"]
            except StatusError:
                return None
            steps = self._total_steps(member.job_uid)
            self.trainings[key] = Training(key, len(nodes), steps)
        return self.trainings[key]

    async def _launch(self, member: protocol.Member, pod: Json, training: Training) -> None:
        launcher = Launcher(
            self, pod, training, Recording(self._workloads, member, _variables(pod))
        )
        self._living[pod["metadata"]["uid"]] = launcher
        try:
            await launcher.run()
        except _RevokedError:
            if self.runs(pod):
                self._checks.launcher_stops(pod, training.key)
                if self.checkpoints.is_late():
                    await launcher.commit_late()
            launcher.end(EXIT_REVOKED)
        finally:
            del self._living[pod["metadata"]["uid"]]

    def sigterm(self, pod: Json) -> bool:
        """The launcher of a pod gets SIGTERM; False if there is none."""
        launcher = self._living.get(pod["metadata"]["uid"])
        if launcher is not None:
            launcher.ends_s = self.now_s + self._terminations.choice(TERMINATIONS_S)
        return launcher is not None

    def terminate(self, training: Training, node_rank: int) -> None:
        """SIGTERM has ended a rank, and others may find their connections to it reset."""
        training.terminate(now_s=self.now_s)
        if node_rank in training.started and self._terminations.random() < RESETS:
            training.reset |= training.started - {node_rank}

    async def post(
        self, launcher: Launcher, path: str, message: object, kind: type[Reply]
    ) -> Reply | None:
        """The answer; None when there is none for now. Raises _RevokedError."""
        replica = self._route()
        if replica is None or not self._machines().is_reached(launcher.node):
            await asyncio.sleep(TIMEOUT_S)
            return None
        await asyncio.sleep(self._rng.uniform(0.001, 0.05))
        was_stopping = self._checks.is_stopping(replica, launcher.key)
        answered = replica.post(path, launcher.bearer, protocol.encode(message))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = await answered
        except TimeoutError:
            return None
        assert response.status not in (400, 413), f"a wrong message: {response.body!r}"
        if response.status == 409:
            raise _RevokedError(response.body)
        if response.status != 200:
            return None
        answer = protocol.decode(kind, response.body)
        if was_stopping and getattr(answer, "order", None) is protocol.Order.CONTINUE:
            found = f"{replica.name} deletes pods of {launcher.key} and lets others go on"
            raise ViolationError(f"I28: {found}")
        if isinstance(answer, protocol.Registered) and answer.world is not None:
            self._checks.launcher_starts(launcher.key, answer.world)
        return answer

    def check_recorded(self, member: protocol.Member, group: str, step: int) -> None:
        """I26: a granted commit is in the job's status, while its attempt is the newest."""
        for job in self._server.objects(routes.kind(names.TRAINING_JOBS)):
            status = job.get("status", {})
            if job["metadata"]["uid"] != member.job_uid:
                continue
            if status["attempt"] == member.attempt > status["endedAttempt"]:
                held = [
                    (p["group"], p["attempt"], p["step"]) for p in status.get("checkpoints", ())
                ]
                if not any(p[:2] == (group, member.attempt) and p[2] >= step for p in held):
                    raise ViolationError(f"I26: {member} may commit {step}, recorded are {held}")

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._loop.time()

    def runs(self, pod: Json) -> bool:
        """Whether the containers of this very pod run."""
        return self._machines().holds_running(pod)

    def end(self, pod: Json, exit_code: int) -> None:
        """The container has ended; its kubelet reports it when it can."""
        machines = self._machines()
        if machines.is_reached(pod["spec"]["nodeName"]):
            machines.end(pod, exit_code=exit_code)
        else:
            self._loop.call_later(TIMEOUT_S, self._end_later, pod, exit_code)

    def _end_later(self, pod: Json, exit_code: int) -> None:
        if self.runs(pod):
            self.end(pod, exit_code)


class Launcher:
    """The launcher of one pod."""

    def __init__(
        self, launchers: Launchers, pod: Json, training: Training, recording: Recording
    ) -> None:
        self._launchers = launchers
        self._recording = recording
        self._member = member = recording.member
        self._pod = pod
        self._training = training
        self._sequence = 0
        self._world_info: protocol.WorldInfo | None = None
        self._wants_stacks = False
        self._spoken_s = -1.0 * protocol.HEARTBEAT_INTERVAL_S_MAX
        self._interval_s: float = protocol.HEARTBEAT_INTERVAL_S
        self.ends_s = math.inf
        self.key = training.key
        self.node = pod["spec"]["nodeName"]
        self.bearer = Bearer(
            pod["metadata"]["uid"], "default", self.node, (rendering.audience(member.job_uid),)
        )

    async def run(self) -> None:
        """Register, then report, until the ranks have ended or the pod is gone."""
        while self._world_info is None:
            await asyncio.sleep(protocol.REGISTER_INTERVAL_S)
            if not self._launchers.runs(self._pod):
                return
            if self.ends_s < math.inf:
                self._launchers.terminate(self._training, self._member.node_rank)
                self.end(EXIT_TERMINATED)
                return
            await self._register()
        self._training.start(
            self._member.node_rank,
            self._world_info,
            now_s=self._launchers.now_s,
            read=partial(self._launchers.checkpoints.read, self.key),
        )
        while self._launchers.runs(self._pod):
            exit_code = self._training.take_failure(self._member.node_rank)
            if exit_code is None and self.ends_s <= self._launchers.now_s:
                exit_code = EXIT_TERMINATED
                self._launchers.terminate(self._training, self._member.node_rank)
            if exit_code is not None:
                await self._send_heartbeat(
                    failure=protocol.Failure(self._world_info.first_rank, exit_code)
                )
                self.end(exit_code)
                return
            await self._train()
            if self._training.is_over:
                self._training.ended.add(self._member.node_rank)
                await self._send_heartbeat(running=0)
                self.end(0)
                return
            if self._launchers.now_s - self._spoken_s >= self._interval_s:
                await self._send_heartbeat()
            await asyncio.sleep(TICK_S)

    def end(self, exit_code: int) -> None:
        """All ranks have ended."""
        self._launchers.end(self._pod, exit_code)

    async def _register(self) -> None:
        address = self._pod["status"]["podIP"]
        message = protocol.Register(self._member, address, 29_500, self._recording.processes)
        answer = await self._launchers.post(self, "/v1/register", message, protocol.Registered)
        if answer is not None and answer.order is protocol.Order.STOP:
            raise _RevokedError
        self._world_info = None if answer is None else answer.world

    async def _train(self) -> None:
        """The first node rank counts the steps of all; each master commits for its group."""
        training = self._training
        if self._member.node_rank == 0:
            training.make_step(now_s=self._launchers.now_s)
        group, step = training.due_commit(self._member.node_rank), training.step
        if group is None:
            return
        if self._recording.is_pre_run:
            # This script saves in pre-runs too, and does not wait for the answer.
            training.committed[group] = protocol.Checkpoint(self._member.attempt, step)
            return
        if await self._commit(group, step):
            self._launchers.check_recorded(self._member, group, step)
            training.committed[group] = protocol.Checkpoint(self._member.attempt, step)

    async def commit_late(self) -> None:
        """The ranks go on, although the attempt was revoked, and their group saves what they
        make."""
        world, training = self._world_info, self._training
        if world is None or world.group_rank != 0:
            return
        for ahead in range(1, LATE_COMMITS + 1):
            await asyncio.sleep(TICK_S)
            if not self._launchers.runs(self._pod):
                return
            self._launchers.checkpoints.counts["late commit"] += 1
            with contextlib.suppress(_RevokedError):
                await self._commit(world.group, training.step + ahead)

    async def _commit(self, group: str, step: int) -> bool:
        """Whether the group may commit this step."""
        checkpoints = self._launchers.checkpoints
        checkpoints.ask(self.key, group, step)
        message = protocol.Commit(self._member, step)
        answer = await self._launchers.post(self, "/v1/commit", message, protocol.CommitAnswer)
        is_granted = answer is not None and answer.granted
        if is_granted:
            checkpoints.save(self.key, group, step)
        return is_granted

    async def _send_heartbeat(
        self, *, running: int = 1, failure: protocol.Failure | None = None
    ) -> None:
        training, now_s = self._training, self._launchers.now_s
        assert self._world_info is not None
        group, leads = self._world_info.group, self._world_info.group_rank == 0
        self._sequence += 1
        self._spoken_s = now_s
        stack = protocol.Stack((self._world_info.first_rank,), 1, answered=True, text="all_reduce")
        message = protocol.Heartbeat(
            self._member,
            self._sequence,
            running=self._recording.processes * running if failure is None else 0,
            exited=self._recording.processes * (1 - running),
            progress=protocol.Progress(training.step, training.total_steps),
            failure=failure,
            resumed_from=training.resumed.get(group) if leads else None,
            committed=training.committed.get(group) if leads else None,
            master_address=self._world_info.master_address,
            master_port=self._world_info.master_port,
            steps=training.steps(self._world_info.first_rank, now_s=now_s),
            stacks=(stack,) if self._wants_stacks else None,
        )
        answer = await self._launchers.post(self, "/v1/beat", message, protocol.HeartbeatAnswer)
        if answer is None:
            return
        if answer.order is protocol.Order.STOP:
            raise _RevokedError(answer.reason)
        self._wants_stacks = answer.stacks
        stated = None if self._recording.is_pre_run else answer.interval_s
        self._interval_s = stated or protocol.HEARTBEAT_INTERVAL_S
        await self._hand_over()

    async def _hand_over(self) -> None:
        """Send the recordings of the ranks, once all of them have recorded."""
        assert self._world_info is not None
        messages = self._recording.due(self._world_info, self._training.steps_made)
        for message in messages:
            self._training.recorded.add(message.part.rank)
            kind = protocol.HeartbeatAnswer
            if await self._launchers.post(self, "/v1/profile", message, kind) is None:
                return
        if messages:
            self._recording.sent()


def _variables(pod: Json) -> Mapping[str, str]:
    """The environment of a pod's launcher; empty for a pod without one."""
    found = pod["spec"]["containers"][0].get("env", ())
    return {each["name"]: each["value"] for each in found if "value" in each}
