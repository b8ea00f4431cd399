"""Launchers for simulated nodes, whose pods run nothing.

kwok reports a pod on a simulated node as running, but no process registers, sends heartbeats or
commits, so no gang would pass its barrier. This module simulates one launcher for each such pod,
with the real protocol and a token bound to the pod. It simulates training too: a gang makes steps
while all of its launchers run, as with an all-reduce, and commits at an interval; a pre-run sends a
recording of that all-reduce. One thread runs all launchers in rounds, which is enough for some
tens.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from railwright import endpoint, environment, protocol, strides
from railwright.profile import Calls, Handover, Operation, Recorded
from railwright_api import names
from railwright_testbed.api_client import ApiClient, ApiError, Json
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.kwok import PREFIX

logger = logging.getLogger(__name__)

TURN_S = 0.25
TOKEN_SECONDS = 3600
MASTER_PORT = 29_500
RECORDED_STEP = 5
GRADIENTS_BYTES = 1 << 20
END_DEADLINE_S = 30.0

GangName = tuple[str, int]
"""A job's UID and the number of an attempt."""


@dataclass(frozen=True, slots=True)
class Played:
    """How the played training goes: steps in all, steps from one checkpoint to the next."""

    steps: int
    checkpoint_interval_steps: int


@dataclass(slots=True)
class _Launcher:
    pod: environment.Pod
    path: str
    node: str
    operator: endpoint.Endpoint
    records: bool = False
    world: protocol.WorldInfo | None = None
    sequence: int = 0
    speaks_at_s: float = 0.0
    over: bool = False


@dataclass(slots=True)
class _Gang:
    launchers: dict[int, _Launcher] = field(default_factory=dict)
    step: int = 0
    first_step: int | None = None
    resumed_from: protocol.Checkpoint | None = None
    committed: protocol.Checkpoint | None = None


class SimulatedLaunchers:
    """Plays the launchers of all TrainingJobs of one control plane, or of one namespace, while it
    is entered."""

    def __init__(self, plane: ControlPlane, played: Played, *, namespace: str = "") -> None:
        self._client = plane.client()
        pods = f"namespaces/{namespace}/pods" if namespace else "pods"
        self._pods = f"/api/v1/{pods}?labelSelector={names.LABEL_JOB_UID}"
        self._tokens = plane.directory / "simulated-launchers"
        self._played = played
        self._silent: frozenset[str] = frozenset()
        self._gangs: dict[GangName, _Gang] = {}
        self._started: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._play, name="simulated launchers")

    def __repr__(self) -> str:
        return f"<SimulatedLaunchers gangs={len(self._gangs)} silent={sorted(self._silent)}>"

    def silence(self, node: str) -> None:
        """Silence the launchers on this node; their gangs make no steps."""
        self._silent |= {node}

    def resume(self, node: str) -> None:
        """End the silence of the launchers on this node."""
        self._silent -= {node}

    def steps(self, attempt: int) -> tuple[int, int] | None:
        """The first and the newest step that this attempt of any job made; None before."""
        made = [
            (gang.first_step, gang.step)
            for (_, number), gang in list(self._gangs.items())
            if number == attempt and gang.first_step is not None
        ]
        return made[0] if made else None

    def __enter__(self) -> SimulatedLaunchers:
        self._tokens.mkdir(exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join(END_DEADLINE_S)
        for launcher in self._launchers():
            launcher.operator.close()
        self._client.close()

    def _play(self) -> None:
        while not self._closing.wait(TURN_S):
            # The API server may be away for a while, or refuse a token of a pod that just went.
            try:
                self._cast(self._client.get(self._pods)["items"])
                for gang in self._gangs.values():
                    self._speak(gang)
                    self._train(gang)
            except (ApiError, OSError, http.client.HTTPException) as error:
                logger.warning("round interrupted", extra={"error": str(error)})

    def _cast(self, items: list[Json]) -> None:
        """Add a launcher for each new running pod; remove those of deleted pods.

        A pod that exists again after a restore of etcd starts again.
        """
        self._started &= {raw["metadata"]["uid"] for raw in items}
        for raw in items:
            uid = raw["metadata"]["uid"]
            if uid not in self._started and raw.get("status", {}).get("phase") == "Running":
                launcher = _launcher(self._client, raw, self._tokens / uid)
                gang = self._gang(launcher.pod.member)
                gang.launchers[launcher.pod.member.node_rank] = launcher
                self._started.add(uid)
        alive = {_path(raw) for raw in items if "deletionTimestamp" not in raw["metadata"]}
        for launcher in self._launchers():
            launcher.over |= launcher.path not in alive

    def _gang(self, member: protocol.Member) -> _Gang:
        """The gang that a new launcher belongs to: a new one if that of its attempt is over."""
        key = member.job_uid, member.attempt
        gang = self._gangs.setdefault(key, _Gang())
        if all(launcher.over for launcher in gang.launchers.values()):
            for launcher in gang.launchers.values():
                launcher.operator.close()
            gang = self._gangs[key] = _Gang()
        return gang

    def _launchers(self) -> Iterator[_Launcher]:
        for gang in self._gangs.values():
            yield from gang.launchers.values()

    def _speak(self, gang: _Gang) -> None:
        """Send the due messages of all launchers."""
        now_s = time.monotonic()
        for launcher in gang.launchers.values():
            if launcher.over or launcher.node in self._silent or now_s < launcher.speaks_at_s:
                continue
            if launcher.world is None:
                launcher.speaks_at_s = now_s + protocol.REGISTER_INTERVAL_S
                _register(launcher)
            else:
                launcher.speaks_at_s = now_s + protocol.HEARTBEAT_INTERVAL_S
                self._send_heartbeat(gang, launcher, running=1)

    def _train(self, gang: _Gang) -> None:
        """One step, if all launchers are past the barrier and none of them is silent."""
        members = list(gang.launchers.values())
        worlds = [m.world for m in members if m.world is not None and not m.over]
        if not worlds or len(worlds) < worlds[0].num_nodes:
            return
        if any(member.node in self._silent for member in members):
            return
        if gang.first_step is None:
            resume = {group.name: group.resume for group in worlds[0].groups}
            gang.resumed_from = next(iter(resume.get(worlds[0].group, ())), None)
            gang.step = gang.resumed_from.step if gang.resumed_from is not None else 0
            gang.first_step = gang.step + 1
        gang.step += 1
        if members[0].pod.pre_run:
            if gang.step >= RECORDED_STEP:
                for member in members:
                    _hand_over(member)
            return
        if members[0].records and gang.step - gang.first_step + 1 == RECORDED_STEP:
            for member in members:
                _hand_over(member)
        if gang.step % self._played.checkpoint_interval_steps == 0:
            _commit(gang)
        if gang.step == self._played.steps:
            self._end(gang)

    def _end(self, gang: _Gang) -> None:
        """End all ranks with 0: the launchers report it, then the pods succeed."""
        for launcher in gang.launchers.values():
            self._send_heartbeat(gang, launcher, running=0)
            launcher.over = True
            annotations = {f"{PREFIX}/run-for": "0s"}
            self._client.patch(launcher.path, {"metadata": {"annotations": annotations}})

    def _send_heartbeat(self, gang: _Gang, launcher: _Launcher, *, running: int) -> None:
        launcher.sequence += 1
        progress = None
        if gang.first_step is not None:
            progress = protocol.Progress(gang.step, total_steps=self._played.steps)
        leads = launcher.pod.member.node_rank == 0
        heartbeat = protocol.Heartbeat(
            launcher.pod.member,
            launcher.sequence,
            running=running,
            exited=1 - running,
            progress=progress,
            resumed_from=gang.resumed_from if leads else None,
            committed=gang.committed if leads else None,
        )
        with _answered(launcher):
            answer = launcher.operator.post("/v1/beat", heartbeat, kind=protocol.HeartbeatAnswer)
            launcher.over |= answer.order is protocol.Order.STOP


def _launcher(client: ApiClient, raw: Json, token_file: Path) -> _Launcher:
    """The launcher of a pod, from what the operator wrote into that pod."""
    token_file.write_text(_token(client, raw))
    environ = {each["name"]: each.get("value", "") for each in raw["spec"]["containers"][0]["env"]}
    environ["RAILWRIGHT_TOKEN_FILE"] = str(token_file)
    environ["RAILWRIGHT_POD_IP"] = raw["status"]["podIP"]
    pod = environment.pod(environ)
    operator = endpoint.Endpoint(pod.operator_url, pod.token_file, pod.authorities)
    records = environment.PROFILE_STEPS in environ
    return _Launcher(pod, _path(raw), raw["spec"]["nodeName"], operator, records=records)


def _token(client: ApiClient, raw: Json) -> str:
    """A token as the pod's own volume would hold it: for the same audience, bound to the pod."""
    metadata, spec = raw["metadata"], raw["spec"]
    audience = next(
        source["serviceAccountToken"]["audience"]
        for volume in spec["volumes"]
        if volume["name"] == "railwright-token"
        for source in volume["projected"]["sources"]
    )
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    service_account = spec.get("serviceAccountName", "default")
    answer = client.post(
        f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{service_account}/token",
        {
            "spec": {
                "audiences": [audience],
                "boundObjectRef": bound,
                "expirationSeconds": TOKEN_SECONDS,
            }
        },
    )
    return str(answer["status"]["token"])


def _path(raw: Json) -> str:
    return f"/api/v1/namespaces/{raw['metadata']['namespace']}/pods/{raw['metadata']['name']}"


def _register(launcher: _Launcher) -> None:
    pod = launcher.pod
    register = protocol.Register(pod.member, pod.address, MASTER_PORT, pod.num_processes)
    with _answered(launcher):
        answer = launcher.operator.post("/v1/register", register, kind=protocol.Registered)
        launcher.world = answer.world
        launcher.over |= answer.order is protocol.Order.STOP


def _hand_over(launcher: _Launcher) -> None:
    """Send what this node's rank recorded."""
    member, world = launcher.pod.member, launcher.world
    assert world is not None, launcher.path
    ranks = strides.folded(range(world.world_size))
    gradients = Calls(ranks, Operation.ALL_REDUCE, "float32", calls=1, size=GRADIENTS_BYTES)
    part = Recorded(
        world.first_rank, world.world_size, steps=1, step_s=1.0, compute_s=None, calls=(gradients,)
    )
    with _answered(launcher):
        handover = Handover(member, part)
        launcher.operator.post("/v1/profile", handover, kind=protocol.HeartbeatAnswer)


def _commit(gang: _Gang) -> None:
    """The commit of rank 0 before it publishes a checkpoint, and the result."""
    launcher = gang.launchers[0]
    member = launcher.pod.member
    with _answered(launcher):
        commit = protocol.Commit(member, gang.step)
        answer = launcher.operator.post("/v1/commit", commit, kind=protocol.CommitAnswer)
        if answer.granted:
            gang.committed = protocol.Checkpoint(member.attempt, gang.step)


@contextlib.contextmanager
def _answered(launcher: _Launcher) -> Iterator[None]:
    """Send a message: without a response it is retried in the next round; a revocation ends it."""
    try:
        yield
    except endpoint.UnreachableError as error:
        logger.info("not answered", extra={"pod": launcher.path, "error": str(error)})
    except endpoint.RefusedError as refused:
        launcher.over |= refused.is_final
