"""The termination message: how the cause of an end reaches the pod's status without the operator.

The kubelet reads the file when the container has ended and keeps its first 4 KiB.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from railwright import wire

BYTES_MAX = 4096

logger = logging.getLogger(__name__)


def write(path: Path, failure: wire.Failure) -> None:
    """Writes the failure as one JSON object, with as many of its last lines as fit.

    Does nothing where there is no such file: the kubelet makes it, other ways to run have none.
    """
    if not path.exists():
        return
    try:
        path.write_bytes(_fitted(failure))
    except OSError as error:
        logger.warning("the termination message was not written", extra={"error": str(error)})


def _fitted(failure: wire.Failure) -> bytes:
    data = wire.encode(failure)
    while len(data) > BYTES_MAX:
        lines = failure.last_lines
        failure = dataclasses.replace(failure, last_lines=lines[len(lines) // 8 + 1 :])
        data = wire.encode(failure)
    return data
