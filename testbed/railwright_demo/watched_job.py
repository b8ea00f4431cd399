"""One job from its `kubectl apply` to its end: seen, timed, drawn, until what is awaited is so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import TracebackType

from railwright_demo.errors import DemoError
from railwright_demo.milestones import Milestones
from railwright_demo.scene import Scene, read_scene
from railwright_demo.screen import Screen
from railwright_testbed import ControlPlane
from railwright_testbed.api_client import Json

LOOK_INTERVAL_S = 0.2
COLUMNS = "custom-columns=TIME:.eventTime,TYPE:.type,REASON:.reason,MESSAGE:.message"


class WatchedJob:
    """A job that is applied on entering, and what the demo observes of it.

    ``on_scene`` is called with every scene, before the condition of a wait is evaluated;
    ``evidence`` is read when a wait times out.
    """

    def __init__(
        self,
        plane: ControlPlane,
        manifest: Json,
        *,
        screen: Screen,
        on_scene: Callable[[Scene, Milestones], None],
        evidence: Callable[[], str],
    ) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.milestones = Milestones(sum(role["replicas"] for role in manifest["spec"]["roles"]))
        self._plane = plane
        self._manifest = manifest
        self._screen = screen
        self._on_scene = on_scene
        self._evidence = evidence
        self._client = plane.client()
        self._dead: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<WatchedJob {self.name}>"

    def __enter__(self) -> WatchedJob:
        self._plane.kubectl("apply", "-f", "-", stdin=json.dumps(self._manifest))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()
        self._screen.rest()

    def lose(self, node: str, kill: Callable[[str], None], *, deadline_s: float) -> None:
        """Let a node die, and wait until it was named and a new attempt has made a step.

        Raises DemoError when either does not happen within the deadline.
        """
        noted = self.milestones
        self._screen.report(f"{node} dies silently: its link goes down, then all of it")
        noted.link_down_s = time.monotonic()
        kill(node)
        self._dead = frozenset({node})
        self.until(
            lambda _: noted.detected_s is not None, "name the lost node", deadline_s=deadline_s
        )
        after_s = noted.since_link_down_s(noted.detected_s)
        self._screen.report(f"{node} was found lost after {after_s:.1f} s")
        scene = self.until(lambda _: 2 in noted.first_step_s, "resume", deadline_s=deadline_s)
        after_s = noted.since_link_down_s(noted.first_step_s[2])
        self._screen.report(f"it resumed after {after_s:.1f} s on {', '.join(scene.job.nodes)}")

    def until(self, reached: Callable[[Scene], bool], what: str, *, deadline_s: float) -> Scene:
        """The first scene in which it is so. Raises DemoError at the deadline or if the job failed.

        ``what`` completes "the job did not …".
        """
        end_s = time.monotonic() + deadline_s
        while True:
            scene = read_scene(
                self._client, self.name, elapsed_s=self._screen.elapsed_s, dead=self._dead
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
        """kubectl's output: the job's line, and its events in order."""
        events = self._plane.kubectl(
            "get",
            "events",
            f"--field-selector=involvedObject.kind=TrainingJob,involvedObject.name={self.name}",
            "--sort-by=.eventTime",
            f"--output={COLUMNS}",
        )
        line = self._plane.kubectl("get", "tj", self.name)
        return f"$ kubectl get tj {self.name}\n{line}\nits events:\n{events}"
