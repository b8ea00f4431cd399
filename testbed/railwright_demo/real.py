"""The demo on five real nodes: kubelets, containers, torch, and a node whose power is cut."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from railwright_demo import figures
from railwright_demo.figures import Figures
from railwright_demo.milestones import Milestones
from railwright_demo.scene import Scene
from railwright_demo.screen import Screen
from railwright_demo.training_log import TrainingLogs
from railwright_demo.watched_job import WatchedJob
from railwright_testbed import Testbed, example_job, service_process
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.example_job import CHECKPOINT_INTERVAL_STEPS, STEPS
from railwright_testbed.operator_process import OperatorProcess

JOB = "ddp"
UNINTERRUPTED = "ddp-uninterrupted"
# A person should see it train, and see a node die between two checkpoints.
MIN_STEP_S = 0.3
STEPS_BEFORE_DEATH = 34
RANK_THAT_DIES = 2
DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished job: its last scene, each attempt's loss at each step, and kubectl's output."""

    scene: Scene
    losses: dict[int, dict[int, float]]
    milestones: Milestones
    timeline: str


def play(screen: Screen) -> tuple[Figures, str]:
    """The figures, and kubectl's output for the finished job."""
    screen.report("starting etcd, kube-apiserver, kube-controller-manager and five nodes")
    with Testbed.start("demo", example_job.RACKS, gpus_per_node=example_job.GPUS_PER_NODE) as bed:
        screen.report("installing the kinds, and the accounts with their rights")
        service_process.install(bed.control_plane, example_job.REPOSITORY)
        screen.report(
            "starting the controllers and the operator; each leads once it holds its Lease"
        )
        operator = OperatorProcess(
            bed.control_plane,
            name="operator",
            host=bed.host_address,
            launcher_image=bed.launcher_image,
        )
        checkpoints = bed.shared_directory / "checkpoints"
        checkpoints.mkdir()
        with ControllersProcess(bed.control_plane, host=bed.host_address), operator:
            interrupted = _train(bed, screen, operator=operator, loses_a_node=True)
            screen.report("the same training again on the nodes that are left, and nothing happens")
            uninterrupted = _train(bed, screen, operator=operator, loses_a_node=False)
    screen.report("everything is cleaned up")
    return _figures(interrupted, uninterrupted), interrupted.timeline


def _train(bed: Testbed, screen: Screen, *, operator: OperatorProcess, loses_a_node: bool) -> Ended:
    plane = bed.control_plane
    job = JOB if loses_a_node else UNINTERRUPTED
    manifest = example_job.manifest(
        job,
        image=bed.image,
        checkpoints=bed.shared_directory / "checkpoints",
        min_step_s=MIN_STEP_S if loses_a_node else 0.0,
    )

    def on_scene(scene: Scene, milestones: Milestones) -> None:
        logs.follow(scene)
        for attempt, losses in logs.losses().items():
            if losses:
                milestones.stepped(attempt, time.monotonic())

    with (
        contextlib.closing(TrainingLogs(plane)) as logs,
        WatchedJob(
            plane, manifest, screen=screen, on_scene=on_scene, evidence=operator.log
        ) as watched,
    ):
        screen.report(f"kubectl apply: {job}, on four nodes, all eight GPUs of each")
        if loses_a_node:
            scene = watched.until(
                lambda seen: logs.newest_step(seen) >= STEPS_BEFORE_DEATH,
                f"reach step {STEPS_BEFORE_DEATH}",
                deadline_s=DEADLINE_S,
            )
            watched.lose(scene.job.nodes[RANK_THAT_DIES], bed.kill_node, deadline_s=DEADLINE_S)
        scene = watched.until(
            lambda seen: seen.job.phase == "Succeeded" and logs.newest_step(seen) == STEPS,
            "succeed",
            deadline_s=DEADLINE_S,
        )
        return Ended(scene, logs.losses(), watched.milestones, watched.timeline())


def _figures(interrupted: Ended, uninterrupted: Ended) -> Figures:
    scene, milestones = interrupted.scene, interrupted.milestones
    losses = {
        step: loss
        for attempt in sorted(interrupted.losses)
        for step, loss in interrupted.losses[attempt].items()
    }
    reference = uninterrupted.losses if uninterrupted.scene.job.attempt == 1 else {}
    return Figures(
        succeeded=scene.job.phase == "Succeeded",
        steps=max(losses),
        attempts=scene.job.attempt,
        detect_seconds=milestones.since_link_down_s(milestones.detected_s),
        resume_seconds=milestones.since_link_down_s(milestones.first_step_s.get(2)),
        first_start_seconds=milestones.first_start_s(),
        steps_redone=figures.redone(interrupted.losses),
        checkpoint_interval_steps=CHECKPOINT_INTERVAL_STEPS,
        losses_equal_uninterrupted=figures.equal(
            interrupted.losses, reference.get(1, {}), steps=STEPS
        ),
        first_loss=losses.get(1),
        final_loss=losses.get(STEPS),
        pods=sum(pod.attempt == scene.job.attempt for pod in scene.pods),
        nodes=len(scene.nodes),
    )
