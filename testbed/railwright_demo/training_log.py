"""The losses that a training prints, read from the logs of its first pods.

The pods of an attempt that has ended are deleted, and their logs with them. So each log is followed
from the pod's start into a file, by a process of the testbed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from railwright_demo.scene import Pod, Scene
from railwright_testbed import ControlPlane, binaries
from railwright_testbed.processes import Process

LINE = re.compile(r"^step=([0-9]+) loss=(\S+)$", re.MULTILINE)
STARTED = frozenset({"Running", "Succeeded", "Failed"})
RETRY_S = 0.5


def losses_in(text: str) -> dict[int, float]:
    """The loss at each step, from all complete lines with one."""
    whole = text[: text.rfind("\n") + 1]
    return {int(step): float(loss) for step, loss in LINE.findall(whole)}


class TrainingLogs:
    """The logs of node rank 0 of each attempt of one job."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._kubectl = str(binaries.find(["kubectl"])["kubectl"])
        self._following: dict[int, tuple[Process, float]] = {}

    def __repr__(self) -> str:
        return f"<TrainingLogs attempts={sorted(self._following)}>"

    def follow(self, scene: Scene) -> None:
        """Follow the log of the newest attempt from its pod's start, again if that broke off."""
        pod = _first_pod(scene)
        if pod is not None:
            self._ensure(pod.attempt, pod.name)

    def losses(self) -> dict[int, dict[int, float]]:
        """What each attempt has printed so far: the loss at each step."""
        return {
            attempt: losses_in(_text(process.log))
            for attempt, (process, _) in self._following.items()
        }

    def close(self) -> None:
        """Follow no more."""
        for process, _ in self._following.values():
            process.end()

    def _ensure(self, attempt: int, pod: str) -> None:
        process, since_s = self._following.get(attempt, (None, 0.0))
        if process is not None and (process.alive or time.monotonic() - since_s < RETRY_S):
            return
        if process is not None:
            process.end()
        # The container may not run yet: then kubectl ends at once, and is started again.
        command = [
            self._kubectl,
            f"--kubeconfig={self._plane.kubeconfig}",
            "logs",
            "--follow",
            "--container=train",
            pod,
        ]
        started = self._plane.run(f"log-{pod}", command, environment={})
        self._following[attempt] = (started, time.monotonic())


class PolledLogs:
    """The same logs, read whole at each scene, without a process. What a pod printed after the last
    read is missing once the pod is deleted.

    ``read`` returns the log of a pod, or an empty text if there is none.
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._losses: dict[int, dict[int, float]] = {}

    def __repr__(self) -> str:
        return f"<PolledLogs attempts={sorted(self._losses)}>"

    def follow(self, scene: Scene) -> None:
        """Read the log of the newest attempt."""
        pod = _first_pod(scene)
        if pod is not None:
            self._losses.setdefault(pod.attempt, {}).update(losses_in(self._read(pod.name)))

    def losses(self) -> dict[int, dict[int, float]]:
        """What each attempt has printed so far: the loss at each step."""
        return self._losses


def _first_pod(scene: Scene) -> Pod | None:
    """The pod of node rank 0 of the newest attempt, once it has started."""
    for pod in scene.pods:
        if pod.node_rank == 0 and pod.attempt == scene.job.attempt and pod.phase in STARTED:
            return pod
    return None


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
