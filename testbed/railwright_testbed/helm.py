"""Helm, as users of the chart run it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from railwright_testbed import binaries
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.errors import TestbedError

CHART = Path(__file__).resolve().parents[2] / "deploy"
_DEADLINE_S = 300.0


def run(*arguments: str, plane: ControlPlane | None = None) -> str:
    """What it prints, as the administrator of a cluster if there is one. Raises TestbedError with
    its message."""
    command = [str(binaries.find(binaries.CLIENTS)["helm"]), *arguments]
    environment = dict(os.environ)
    if plane is not None:
        environment["KUBECONFIG"] = str(plane.kubeconfig)
    answer = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    if answer.returncode != 0:
        raise TestbedError(f"`helm {' '.join(arguments)}`: {answer.stderr.strip()[-2000:]}")
    return answer.stdout
