"""What real nodes need of this machine: root, namespaces, control groups, a few packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from railwright_testbed import kernel_objects
from railwright_testbed.errors import TestbedError

_PROGRAMS_BY_PACKAGE = {
    "runc": ("runc",),
    "iproute2": ("ip",),
    "iptables": ("iptables",),
    "util-linux": ("nsenter", "unshare"),
    "mount": ("mount",),
}
_PLUGINS_PACKAGE = "containernetworking-plugins"
_PLUGINS = ("bridge", "host-local", "loopback")
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


def missing_for_real_nodes() -> list[str]:
    """What keeps real nodes from working here and cannot be installed by the testbed itself."""
    missing = []
    if os.geteuid() != 0:
        missing.append(f"root (this runs as user {os.geteuid()}): run it with sudo")
    elif not _can_make_namespaces():
        missing.append("the right to make network and mount namespaces: a privileged container?")
    if "\toverlay" not in Path("/proc/filesystems").read_text():
        missing.append("the kernel's overlay file system: modprobe overlay")
    if not any(os.access(path, os.W_OK) for path in kernel_objects.cgroup_hierarchies()):
        missing.append("writable control groups below /sys/fs/cgroup")
    packages = missing_packages()
    if packages and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        missing.append(f"packages: {' '.join(packages)} (apt-get install, or your system's names)")
    return missing


def missing_packages() -> list[str]:
    """Debian's names of the packages whose programs are not here."""
    packages = [
        package
        for package, programs in _PROGRAMS_BY_PACKAGE.items()
        if not all(shutil.which(program) for program in programs)
    ]
    if plugin_folder() is None:
        packages.append(_PLUGINS_PACKAGE)
    return packages


def plugin_folder() -> Path | None:
    """Where the network plugins are."""
    for folder in _PLUGIN_FOLDERS:
        if all((folder / plugin).exists() for plugin in _PLUGINS):
            return folder
    return None


def install_packages() -> None:
    """Install what is missing; refuse with the whole list where that is not possible."""
    missing = missing_for_real_nodes()
    if missing:
        raise TestbedError("real nodes cannot run here; missing: " + "; ".join(missing))
    packages = missing_packages()
    if not packages:
        return
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "--quiet"], install):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise TestbedError(
                f"`{' '.join(command)}` ended with {answer.returncode}: {answer.stderr.strip()}; "
                f"install by hand: {' '.join(packages)}"
            )


def _can_make_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return True  # Its package will be installed; then this is asked again.
    answer = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, check=False
    )
    return answer.returncode == 0
