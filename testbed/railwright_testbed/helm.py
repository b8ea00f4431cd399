"""Helm, as users of the chart run it."""

from __future__ import annotations

import os
from pathlib import Path

from railwright_testbed import binaries, command
from railwright_testbed.control_plane import ControlPlane

CHART = Path(__file__).resolve().parents[2] / "deploy"


def run(*arguments: str, plane: ControlPlane | None = None) -> str:
    """What it prints, as the administrator of a cluster if there is one. Raises TestbedError."""
    program = str(binaries.find(binaries.CLIENTS)["helm"])
    cluster = {} if plane is None else {"KUBECONFIG": str(plane.kubeconfig)}
    return command.output([program, *arguments], environment={**os.environ, **cluster})
