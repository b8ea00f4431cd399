"""The first moments of a container: the launcher is its first process, which the kernel protects
from signals without a handler."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from fixtures import launchers
from railwright_testbed import waiting

PYTHON = """#!/bin/sh
case "$*" in
*--check) : > {folder}/checked; sleep 1;;
*) : > {folder}/ran;;
esac
"""
"""Stands in for an image's interpreter that takes a second to start."""


def test_signal_while_an_interpreter_is_looked_for_ends_the_pod(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(PYTHON.format(folder=tmp_path))
    python.chmod(0o755)
    launch = str(launchers.installed() / "launch")
    contained = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen([*contained, "/bin/sh", launch, "--", "true"], env=environ) as namespace:
        waiting.until((tmp_path / "checked").exists, "the check", deadline_s=30)
        children = Path(f"/proc/{namespace.pid}/task/{namespace.pid}/children")
        os.kill(int(children.read_text()), signal.SIGTERM)
        assert namespace.wait(30) == 128 + signal.SIGTERM
    assert not (tmp_path / "ran").exists()
