"""Names of a testbed's kernel objects, and their removal.

Each name has the testbed's id, so the objects of a crashed testbed can be identified.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from railwright_testbed import waiting

NAMESPACES = Path("/run/netns")
_CGROUP_DEADLINE_S = 30.0


def bridge_name(testbed_id: str) -> str:
    return f"rw{testbed_id}"


def link_name(testbed_id: str, index: int) -> str:
    """The host's end of a node's veth pair; the kernel takes 15 characters at most."""
    return f"rw{testbed_id}-{index}"


def namespace_name(testbed_id: str, node: str) -> str:
    return f"rw{testbed_id}-{node}"


def cgroup_name(testbed_id: str) -> str:
    return f"railwright-{testbed_id}"


def socket_folder(testbed_id: str) -> Path:
    """Short, because the path of a socket may have 107 characters, a shim's folder only 38."""
    return Path(f"/run/railwright-{testbed_id}")


def cgroup_hierarchies() -> list[Path]:
    """Where the control groups are mounted: one place with version 2, one a controller with 1."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [(line.split()[4], line.partition(" - ")[2].split()[0]) for line in lines]
    return [Path(point) for point, kind in fields if kind in ("cgroup", "cgroup2")]


def kill_cgroup(cgroup: str) -> None:
    """Kill every process in a control group and below it, until none is left."""

    def emptied() -> bool:
        pids = list(_pids_in(cgroup))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    waiting.until(emptied, f"empty control group {cgroup}", deadline_s=_CGROUP_DEADLINE_S)


def remove_cgroup(cgroup: str) -> None:
    """Kill what runs in a control group and remove it from every hierarchy."""
    kill_cgroup(cgroup)

    def removed() -> bool:
        for hierarchy in cgroup_hierarchies():
            for folder, _, _ in os.walk(hierarchy / cgroup, topdown=False):
                # Busy for a moment after its last process was killed: retried.
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        return not any((hierarchy / cgroup).exists() for hierarchy in cgroup_hierarchies())

    waiting.until(removed, f"removal of control group {cgroup}", deadline_s=_CGROUP_DEADLINE_S)


def remove_links(testbed_id: str) -> None:
    """Namespaces first: with them go their ends of the veth pairs, and so the host's ends."""
    if NAMESPACES.is_dir():
        for namespace in sorted(NAMESPACES.glob(f"rw{testbed_id}-*")):
            _ip("netns", "delete", namespace.name)
    names = [link["ifname"] for link in json.loads(_ip("-json", "link", "show") or "[]")]
    for name in names:
        if name == bridge_name(testbed_id) or name.startswith(f"rw{testbed_id}-"):
            _ip("link", "delete", name)
    if NAMESPACES.is_dir() and not any(NAMESPACES.iterdir()):
        # `ip` made a mount of the folder for its first namespace, and would make it again.
        subprocess.run(["umount", str(NAMESPACES)], check=False, capture_output=True)


def remove_mounts(folder: Path) -> None:
    """Unmount everything below a folder, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    for point in sorted(points, key=len, reverse=True):
        if Path(point).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _pids_in(cgroup: str) -> Iterator[int]:
    for hierarchy in cgroup_hierarchies():
        for processes_file in (hierarchy / cgroup).glob("**/cgroup.procs"):
            with contextlib.suppress(OSError):
                yield from map(int, processes_file.read_text().split())


def _ip(*arguments: str) -> str:
    if shutil.which("ip") is None:
        return ""
    answer = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    return answer.stdout
