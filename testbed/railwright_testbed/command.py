"""Run a program of this machine to its end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from railwright_testbed.errors import TestbedError


def output(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    deadline_s: float = 600.0,
) -> str:
    """What it prints. Raises TestbedError with its message."""
    try:
        answer = subprocess.run(
            command,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"`{' '.join(command)[:200]}` took more than {deadline_s:.0f} s"
        raise TestbedError(message) from error
    if answer.returncode != 0:
        raise TestbedError(
            f"`{' '.join(command)[:200]}` ended with {answer.returncode}: "
            f"{answer.stderr.strip()[-2000:]}\n{stdin}".rstrip()
        )
    return answer.stdout
