"""One training that is watched to its end, disturbed on its way or not, and its figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from railwright_demo import figures
from railwright_demo.cluster import WatchedCluster
from railwright_demo.figures import Figures
from railwright_demo.milestones import Milestones
from railwright_demo.scene import Scene
from railwright_demo.screen import Screen
from railwright_demo.watched_job import WatchedJob
from railwright_testbed.api_client import Json
from railwright_testbed.example_job import CHECKPOINT_INTERVAL_STEPS, STEPS

JOB = "ddp"
UNINTERRUPTED = "ddp-uninterrupted"
# A person should see it train, and see the failure between two checkpoints.
MIN_STEP_S = 0.3
STEPS_BEFORE_FAILURE = 34
RANK_THAT_DIES = 2
DEADLINE_S = 300.0


class Logs(Protocol):
    """The losses that each attempt prints."""

    def follow(self, scene: Scene) -> None:
        """Read on."""

    def losses(self) -> dict[int, dict[int, float]]:
        """By attempt and step."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished job: its last scene, each attempt's loss at each step, and its events."""

    scene: Scene
    losses: dict[int, dict[int, float]]
    milestones: Milestones
    timeline: str


def train(
    cluster: WatchedCluster,
    manifest: Json,
    *,
    logs: Logs,
    screen: Screen,
    evidence: Callable[[], str],
    disturb: Callable[[WatchedJob, Scene], None] | None,
) -> Ended:
    """Run a job to its end. ``disturb`` is called between two checkpoints. Raises DemoError."""

    def on_scene(scene: Scene, milestones: Milestones) -> None:
        logs.follow(scene)
        for attempt, losses in logs.losses().items():
            if losses:
                milestones.stepped(attempt, time.monotonic())

    def newest_step(scene: Scene) -> int:
        return max(logs.losses().get(scene.job.attempt, {}), default=0)

    with WatchedJob(
        cluster, manifest, screen=screen, on_scene=on_scene, evidence=evidence
    ) as watched:
        if disturb is not None:
            scene = watched.until(
                lambda seen: newest_step(seen) >= STEPS_BEFORE_FAILURE,
                f"reach step {STEPS_BEFORE_FAILURE}",
                deadline_s=DEADLINE_S,
            )
            disturb(watched, scene)
        scene = watched.until(
            lambda seen: seen.job.phase == "Succeeded" and newest_step(seen) == STEPS,
            "succeed",
            deadline_s=DEADLINE_S,
        )
        return Ended(scene, logs.losses(), watched.milestones, watched.timeline())


def figures_of(interrupted: Ended, uninterrupted: Ended) -> Figures:
    """The figures of a disturbed training, compared with the same training without a failure."""
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
        detect_seconds=milestones.since_disturbed_s(milestones.detected_s),
        resume_seconds=milestones.since_disturbed_s(milestones.first_step_s.get(2)),
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
