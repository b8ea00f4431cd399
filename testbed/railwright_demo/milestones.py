"""When what was first seen: the times that the figures are made of."""

from __future__ import annotations

from railwright_demo.scene import Scene


class Milestones:
    """Monotonic seconds at which each thing was first seen; None or absent: not yet."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self.bound_s: dict[int, float] = {}
        self.first_step_s: dict[int, float] = {}
        self.link_down_s: float | None = None
        self.detected_s: float | None = None

    def __repr__(self) -> str:
        return f"<Milestones bound={self.bound_s} detected={self.detected_s}>"

    def saw(self, scene: Scene, now_s: float) -> None:
        """Take in what is seen now: a gang that is bound, a lost node that is named."""
        for attempt in {pod.attempt for pod in scene.pods}:
            bound = [pod for pod in scene.pods if pod.attempt == attempt and pod.node]
            if len(bound) == self._num_nodes:
                self.bound_s.setdefault(attempt, now_s)
        if self.detected_s is None and scene.dead and scene.dead <= set(scene.job.lost_nodes):
            self.detected_s = now_s

    def stepped(self, attempt: int, now_s: float) -> None:
        """The first optimiser step of this attempt was seen; later calls change nothing."""
        self.first_step_s.setdefault(attempt, now_s)

    def since_link_down_s(self, then_s: float | None) -> float | None:
        """Seconds from the link going down to then; None if one of them was not."""
        if then_s is None or self.link_down_s is None:
            return None
        return then_s - self.link_down_s

    def first_start_s(self) -> float | None:
        """From the gang of attempt 1 being bound to its first step."""
        if 1 not in self.bound_s or 1 not in self.first_step_s:
            return None
        return self.first_step_s[1] - self.bound_s[1]
