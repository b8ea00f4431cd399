"""``railwright`` as a person runs it on a cluster: a process of its own, with a kubeconfig."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from integration.operator_site import Site

DEADLINE_S = 60


def run(kubeconfig: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command that ended, whatever its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "railwright_cli", *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def printed(kubeconfig: Path, *arguments: str, stdin: str = "") -> str:
    """What a command prints that succeeds."""
    ended = run(kubeconfig, *arguments, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def document(kubeconfig: Path, *arguments: str) -> Any:
    """The JSON that a command prints."""
    return json.loads(printed(kubeconfig, *arguments, "-o", "json"))


def topology(site: Site, *arguments: str) -> str:
    """What ``railwright topology`` prints."""
    return printed(site.plane.kubeconfig, "topology", *arguments)
