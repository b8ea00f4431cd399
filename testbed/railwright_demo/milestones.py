"""When what was first seen: the times that the figures are made of."""

from __future__ import annotations

from railwright_demo.scene import Scene


class Milestones:
    """Monotonic seconds at which each thing was first seen; None or absent: not yet.

    ``disturbed_s`` is when the link of a node went down, or a pod was deleted.
    """

    def __init__(self, num_pods: int) -> None:
        self._num_pods = num_pods
        self.bound_s: dict[int, float] = {}
        self.first_step_s: dict[int, float] = {}
        self.disturbed_s: float | None = None
        self.detected_s: float | None = None

    def __repr__(self) -> str:
        return f"<Milestones bound={self.bound_s} detected={self.detected_s}>"

    def saw(self, scene: Scene, now_s: float) -> None:
        """Take in what is seen now: a gang that is bound, an end of an attempt that names the lost
        node, if one is lost."""
        for attempt in {pod.attempt for pod in scene.pods}:
            bound = [pod for pod in scene.pods if pod.attempt == attempt and pod.node]
            if len(bound) == self._num_pods:
                self.bound_s.setdefault(attempt, now_s)
        is_named = scene.job.ended_attempt > 0 and scene.dead <= set(scene.job.lost_nodes)
        if self.detected_s is None and self.disturbed_s is not None and is_named:
            self.detected_s = now_s

    def stepped(self, attempt: int, now_s: float) -> None:
        """The first optimiser step of this attempt was seen; later calls change nothing."""
        self.first_step_s.setdefault(attempt, now_s)

    def since_disturbed_s(self, then_s: float | None) -> float | None:
        """Seconds from the disturbance to then; None if one of them was not."""
        if then_s is None or self.disturbed_s is None:
            return None
        return then_s - self.disturbed_s

    def first_start_s(self) -> float | None:
        """From the gang of attempt 1 being bound to its first step."""
        if 1 not in self.bound_s or 1 not in self.first_step_s:
            return None
        return self.first_step_s[1] - self.bound_s[1]
