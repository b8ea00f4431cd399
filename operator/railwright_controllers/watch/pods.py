"""Pods, as far as the controllers need them: which nodes are busy, and which agents live."""

from __future__ import annotations

import collections
import sys
from dataclasses import dataclass, field

from railwright_api import names
from railwright_conversion import amounts
from railwright_kube.core_v1 import TERMINAL_PHASES, PodObject
from railwright_scheduler.model.snapshot import is_device


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod. ``node`` is empty while it is unbound; ``trains`` is whether it uses devices, or
    belongs to a TrainingJob."""

    uid: str
    rv: int = field(compare=False)
    node: str
    terminal: bool
    trains: bool

    @property
    def occupied(self) -> str:
        """The node that the pod keeps busy; empty if there is none."""
        return self.node if self.trains and not self.terminal else ""


def record(found: PodObject) -> RunningPod:
    """The record of a Pod. Raises ValueError for what Kubernetes would not have stored."""
    metadata = found.metadata
    return RunningPod(
        metadata.uid,
        int(metadata.resource_version),
        node=sys.intern(found.spec.node_name),
        terminal=found.status.phase in TERMINAL_PHASES,
        trains=names.LABEL_JOB_UID in metadata.labels
        or any(map(is_device, amounts.counted(found.spec))),
    )


class BusyNodes:
    """The number of pods that keep each node busy. Surveys leave these nodes out."""

    def __init__(self) -> None:
        self._pods: collections.Counter[str] = collections.Counter()

    def change(self, old: RunningPod | None, new: RunningPod | None) -> None:
        """Take in a change; None means absent."""
        if old is not None and old.occupied:
            self._pods[old.occupied] -= 1
            if not self._pods[old.occupied]:
                del self._pods[old.occupied]
        if new is not None and new.occupied:
            self._pods[new.occupied] += 1

    def names(self) -> frozenset[str]:
        """The busy nodes."""
        return frozenset(self._pods)
