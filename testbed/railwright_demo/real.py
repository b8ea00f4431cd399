"""The demo on five real nodes: kubelets, containers, torch, and a node whose power is cut."""

from __future__ import annotations

import contextlib

from railwright_demo import training
from railwright_demo.cluster import TestbedCluster
from railwright_demo.figures import Figures
from railwright_demo.scene import Scene
from railwright_demo.screen import Screen
from railwright_demo.training import Ended
from railwright_demo.training_log import TrainingLogs
from railwright_demo.watched_job import WatchedJob
from railwright_testbed import Testbed, example_job, service_process
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess


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
    return training.figures_of(interrupted, uninterrupted), interrupted.timeline


def _train(bed: Testbed, screen: Screen, *, operator: OperatorProcess, loses_a_node: bool) -> Ended:
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
            evidence=operator.log,
            disturb=lose_node if loses_a_node else None,
        )
