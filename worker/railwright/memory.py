"""Memory kills: how many processes of this container the kernel killed, and the container's limit.

Under cgroup v2 the count is ``oom_kill`` in memory.events, under v1 in memory.oom_control. The
kernel counts a kill before it sends the signal, so a parent that sees the end of a child sees the
count too. Where cgroups are not mounted nothing is known, and nothing is claimed.
"""

from __future__ import annotations

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


def find_files(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Files | None:
    """The files of this process's memory cgroup; None where there are none."""
    for events, limit in _candidates(root, membership):
        if events.is_file():
            return Files(events, limit)
    return None


def count_kills(files: Files | None) -> int:
    """How many processes the kernel has killed for memory so far."""
    if files is None:
        return 0
    try:
        lines = files.events.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines)
    return sum(int(words[1]) for words in found if words[0] == "oom_kill")


def read_limit(files: Files | None) -> int | None:
    """The container's limit in bytes; None where it has none."""
    if files is None:
        return None
    try:
        text = files.limit.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() and int(text) < LIMIT_MAX else None


def _candidates(root: Path, membership: Path) -> list[tuple[Path, Path]]:
    """In a container its own cgroup is mounted at the root, whatever path the kernel gives it."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[Path, Path]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inner = path.lstrip("/")
        if not controllers:
            folders = (root / inner, root)
            found += [(at / "memory.events", at / "memory.max") for at in folders]
        elif "memory" in controllers.split(","):
            folders = (root / "memory" / inner, root / "memory")
            found += [(at / "memory.oom_control", at / "memory.limit_in_bytes") for at in folders]
    return found
