"""The demo on five real nodes: kubelets, containers, torch, and a node whose power is cut."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from railwright_demo import training
from railwright_demo.cluster import TestbedCluster
from railwright_demo.figures import Figures
from railwright_demo.scene import Scene
from railwright_demo.screen import Screen
from railwright_demo.training import Ended
from railwright_demo.training_log import TrainingLogs
from railwright_demo.watched_job import WatchedJob
from railwright_testbed import Testbed, deployment, example_job


def play(screen: Screen) -> tuple[Figures, str]:
    """The figures, and kubectl's output for the finished job."""
    screen.report("starting Kubernetes: its control plane, five nodes, and one for Railwright")
    with (
        Testbed.start("demo", example_job.RACKS, gpus_per_node=example_job.GPUS_PER_NODE) as bed,
        tempfile.TemporaryDirectory() as folder,
    ):
        screen.report("assembling Railwright's images, and loading them on all nodes")
        deployment.load(bed, Path(folder))
        screen.report("helm install railwright")
        deployment.install(bed.control_plane)
        checkpoints = bed.shared_directory / "checkpoints"
        checkpoints.mkdir()
        interrupted = _train(bed, screen, loses_a_node=True)
        screen.report("the same training again on the nodes that are left, and nothing happens")
        uninterrupted = _train(bed, screen, loses_a_node=False)
    screen.report("everything is cleaned up")
    return training.figures_of(interrupted, uninterrupted), interrupted.timeline


def _train(bed: Testbed, screen: Screen, *, loses_a_node: bool) -> Ended:
    job = training.JOB if loses_a_node else training.UNINTERRUPTED
    manifest = example_job.manifest(
        job,
        image=bed.image,
        checkpoints=bed.shared_directory / "checkpoints",
        min_step_s=training.MIN_STEP_S if loses_a_node else 0.0,
    )

    def lose_node(watched: WatchedJob, scene: Scene) -> None:
        node = scene.job.nodes[training.RANK_THAT_DIES]
        watched.lose(node, bed.kill_node, deadline_s=training.DEADLINE_S)

    screen.report(f"kubectl apply: {job}, on four nodes, all eight GPUs of each")
    with (
        contextlib.closing(TrainingLogs(bed.control_plane)) as logs,
        contextlib.closing(TestbedCluster(bed.control_plane)) as cluster,
    ):
        return training.train(
            cluster,
            manifest,
            logs=logs,
            screen=screen,
            evidence=lambda: deployment.operator_log(bed.control_plane),
            disturb=lose_node if loses_a_node else None,
        )
