"""One job from its creation to its end: seen, timed, drawn, until what is awaited is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from railwright_demo.cluster import WatchedCluster
from railwright_demo.errors import DemoError
from railwright_demo.milestones import Milestones
from railwright_demo.scene import Scene, read_scene
from railwright_demo.screen import Screen
from railwright_testbed.api_client import Json

LOOK_INTERVAL_S = 0.2


class WatchedJob:
    """A job that is created on entering, and what the demo observes of it.

    ``on_scene`` is called with every scene, before the condition of a wait is evaluated;
    ``evidence`` is read when a wait times out.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        manifest: Json,
        *,
        screen: Screen,
        on_scene: Callable[[Scene, Milestones], None],
        evidence: Callable[[], str],
    ) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.milestones = Milestones(sum(role["replicas"] for role in manifest["spec"]["roles"]))
        self._cluster = cluster
        self._manifest = manifest
        self._screen = screen
        self._on_scene = on_scene
        self._evidence = evidence
        self._dead: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<WatchedJob {self.name}>"

    def __enter__(self) -> WatchedJob:
        self._cluster.apply(self._manifest)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._screen.rest()

    def lose(self, node: str, kill: Callable[[str], None], *, deadline_s: float) -> None:
        """Let a node die, and wait until it was named and a new attempt has made a step.

        Raises DemoError when either does not happen within the deadline.
        """
        self._screen.report(f"{node} dies silently: its link goes down, then all of it")
        self._dead = frozenset({node})
        self._disturb(node, lambda: kill(node), deadline_s=deadline_s)

    def lose_pod(self, pod: str, delete: Callable[[str], None], *, deadline_s: float) -> None:
        """Delete a pod, and wait in the same way."""
        self._screen.report(f"kubectl delete pod {pod}")
        self._disturb(pod, lambda: delete(pod), deadline_s=deadline_s)

    def _disturb(self, lost: str, act: Callable[[], None], *, deadline_s: float) -> None:
        noted = self.milestones
        noted.disturbed_s = time.monotonic()
        act()
        self.until(lambda _: noted.detected_s is not None, f"name {lost}", deadline_s=deadline_s)
        after_s = noted.since_disturbed_s(noted.detected_s)
        self._screen.report(f"{lost} was found lost after {after_s:.1f} s")
        scene = self.until(lambda _: 2 in noted.first_step_s, "resume", deadline_s=deadline_s)
        after_s = noted.since_disturbed_s(noted.first_step_s[2])
        nodes = ", ".join(dict.fromkeys(scene.job.nodes))
        self._screen.report(f"it resumed after {after_s:.1f} s on {nodes}")

    def until(self, reached: Callable[[Scene], bool], what: str, *, deadline_s: float) -> Scene:
        """The first scene in which it is so. Raises DemoError at the deadline or if the job failed.

        ``what`` completes "the job did not …".
        """
        end_s = time.monotonic() + deadline_s
        while True:
            scene = read_scene(
                self._cluster, self.name, elapsed_s=self._screen.elapsed_s, dead=self._dead
            )
            self.milestones.saw(scene, time.monotonic())
            self._on_scene(scene, self.milestones)
            self._screen.show(scene, f"job {self.name}")
            if reached(scene):
                return scene
            if scene.job.phase == "Failed" or time.monotonic() > end_s:
                raise DemoError(
                    f"{self.name} did not {what} within {deadline_s:g} s; it is "
                    f"{scene.job.phase or 'untouched by the operator'}: {scene.job.message}\n"
                    f"{self._evidence()}"
                )
            time.sleep(LOOK_INTERVAL_S)

    def timeline(self) -> str:
        """The job and its events in order, as text."""
        return self._cluster.timeline(self.name)
