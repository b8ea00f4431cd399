"""Memory kills: how many processes of this container the kernel killed, and the container's limit.

Under cgroup v2 the count is ``oom_kill`` in memory.events, under v1 in memory.oom_control. The
kernel counts a kill before it sends the signal, so a parent that sees the end of a child sees the
count too. Without mounted cgroups no kill is reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
LIMIT_MAX = 2**60
"""Bytes. Version 1 writes the absence of a limit as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the kernel writes the count and the limit."""

    events: Path
    limit: Path


def find_files(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Files:
    """The files of this process's memory cgroup; empty ones where cgroups are not mounted."""
    found = (files for files in _candidates(root, membership) if files.events.is_file())
    return next(found, Files(Path(os.devnull), Path(os.devnull)))


def count_kills(files: Files) -> int:
    """How many processes the kernel has killed for memory so far."""
    found = (line.split() for line in _read(files.events).splitlines())
    return sum(int(words[1]) for words in found if words[0] == "oom_kill")


def read_limit(files: Files) -> int | None:
    """The container's limit in bytes; None where it has none."""
    text = _read(files.limit).strip()
    return int(text) if text.isdecimal() and int(text) < LIMIT_MAX else None


def _candidates(root: Path, membership: Path) -> Iterator[Files]:
    """In a container its own cgroup is mounted at the root, whatever path the kernel gives it."""
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, names = root, ("memory.events", "memory.max")
        elif "memory" in controllers.split(","):
            base, names = root / "memory", ("memory.oom_control", "memory.limit_in_bytes")
        else:
            continue
        for folder in (base / path.lstrip("/"), base):
            yield Files(folder / names[0], folder / names[1])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
