"""The demo without pods and without root: nodes, launchers and training are played.

The API server, the operator, its decisions, its protocol and its detection of a dead node are real.
Nothing starts and nothing learns, so start times and losses are unknown.
"""

from __future__ import annotations

import contextlib
import time

from railwright_api import names
from railwright_demo import figures
from railwright_demo.cluster import TestbedCluster
from railwright_demo.figures import Figures
from railwright_demo.milestones import Milestones
from railwright_demo.scene import Scene
from railwright_demo.screen import Screen
from railwright_demo.watched_job import WatchedJob
from railwright_testbed import ControlPlane, Kwok, NodeSpec, example_job, service_process
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.example_job import CHECKPOINT_INTERVAL_STEPS, STEPS
from railwright_testbed.operator_process import OperatorProcess
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

JOB = "ddp"
NO_IMAGE = "simulated"
LOOPBACK = "127.0.0.1"
STEPS_BEFORE_DEATH = 34
RANK_THAT_DIES = 2
DEADLINE_S = 120.0


def play(screen: Screen) -> tuple[Figures, str]:
    """The figures, and kubectl's output for the finished job."""
    screen.report("starting etcd, kube-apiserver and kube-controller-manager")
    with ControlPlane.start("demo-simulated") as plane, contextlib.ExitStack() as machines:
        screen.report("installing the kinds, and the accounts with their rights")
        service_process.install(plane, example_job.REPOSITORY)
        screen.report("starting five simulated nodes")
        nodes = {spec.name: machines.enter_context(plane.kwok([spec])) for spec in _nodes()}
        screen.report(
            "starting the controllers and the operator; each leads once it holds its Lease"
        )
        operator = OperatorProcess(plane, name="operator", host=LOOPBACK, launcher_image=NO_IMAGE)
        played = Played(STEPS, CHECKPOINT_INTERVAL_STEPS)
        with (
            ControllersProcess(plane),
            operator,
            SimulatedLaunchers(plane, played) as launchers,
        ):
            found, timeline = _lose_a_node(
                plane, screen, operator=operator, nodes=nodes, launchers=launchers
            )
    screen.report("everything is cleaned up")
    return found, timeline


def _nodes() -> list[NodeSpec]:
    """The nodes of the real demo, each to be simulated by a process that can die alone."""
    return [
        NodeSpec(
            f"node-{rack.rpartition('-')[2]}{number}",
            {names.LABEL_RACK: rack, names.LABEL_BLOCK: f"block-{1 + index // 2}"},
            {example_job.GPU: str(example_job.GPUS_PER_NODE)},
        )
        for index, (rack, count) in enumerate(example_job.RACKS.items())
        for number in range(1, count + 1)
    ]


def _lose_a_node(
    plane: ControlPlane,
    screen: Screen,
    *,
    operator: OperatorProcess,
    nodes: dict[str, Kwok],
    launchers: SimulatedLaunchers,
) -> tuple[Figures, str]:
    def on_scene(_scene: Scene, milestones: Milestones) -> None:
        if launchers.steps(2) is not None:
            milestones.stepped(2, time.monotonic())

    def die(node: str) -> None:
        launchers.silence(node)
        nodes[node].freeze()

    manifest = example_job.manifest(JOB, image=NO_IMAGE, checkpoints=None, min_step_s=0.0)
    with (
        contextlib.closing(TestbedCluster(plane)) as cluster,
        WatchedJob(
            cluster, manifest, screen=screen, on_scene=on_scene, evidence=operator.log
        ) as watched,
    ):
        screen.report(f"kubectl apply: {JOB}, on four nodes, all eight GPUs of each")
        scene = watched.until(
            lambda _: _newest_step(launchers) >= STEPS_BEFORE_DEATH,
            f"reach step {STEPS_BEFORE_DEATH}",
            deadline_s=DEADLINE_S,
        )
        watched.lose(scene.job.nodes[RANK_THAT_DIES], die, deadline_s=DEADLINE_S)
        scene = watched.until(_has_ended, "succeed", deadline_s=DEADLINE_S)
        return _figures(scene, watched.milestones, launchers), watched.timeline()


def _has_ended(seen: Scene) -> bool:
    """The event comes after the status, and is part of the timeline."""
    return seen.job.phase == "Succeeded" and any(
        event.reason == "Succeeded" for event in seen.events
    )


def _newest_step(launchers: SimulatedLaunchers) -> int:
    span = launchers.steps(1)
    return 0 if span is None else span[1]


def _figures(scene: Scene, milestones: Milestones, launchers: SimulatedLaunchers) -> Figures:
    made = {attempt: launchers.steps(attempt) for attempt in (1, 2)}
    done = {attempt: range(span[0], span[1] + 1) for attempt, span in made.items() if span}
    return Figures(
        succeeded=scene.job.phase == "Succeeded",
        steps=scene.job.step,
        attempts=scene.job.attempt,
        detect_seconds=milestones.since_disturbed_s(milestones.detected_s),
        resume_seconds=None,
        first_start_seconds=None,
        steps_redone=figures.redone(done),
        checkpoint_interval_steps=CHECKPOINT_INTERVAL_STEPS,
        losses_equal_uninterrupted=None,
        first_loss=None,
        final_loss=None,
        pods=sum(pod.attempt == scene.job.attempt for pod in scene.pods),
        nodes=len(scene.nodes),
    )
