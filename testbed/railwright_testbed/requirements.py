"""What a testbed needs of this machine: root, namespaces, control groups, a few packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from railwright_testbed import kernel_objects
from railwright_testbed.errors import TestbedError

ProgramsByPackage = Mapping[str, tuple[str, ...]]
"""By Debian's name of a package, the programs that it brings."""

_PROGRAMS_BY_PACKAGE: ProgramsByPackage = {
    "runc": ("runc",),
    "iproute2": ("ip", "tc"),
    "iptables": ("iptables",),
    "util-linux": ("nsenter", "unshare"),
    "mount": ("mount",),
}
SIMULATED_NETWORKS: ProgramsByPackage = {
    "ibsim-utils": ("ibsim", "ibsim-run"),
    "infiniband-diags": ("ibnetdiscover",),
    "lldpd": ("lldpd", "lldpcli"),
}
HARDWARE_TOOLS: ProgramsByPackage = {"hwloc-nox": ("lstopo-no-graphics",)}
SYSTEM_PYTHON = "/usr/bin/python3"
"""The one that Debian's packages bring modules for."""

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
    """Debian's names of the packages whose programs are missing."""
    packages = _without(_PROGRAMS_BY_PACKAGE)
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
    _install(missing_packages())


def prepare() -> None:
    """Install all packages now, if this user may: later they would change the mounts of
    running containers, and two concurrent installations fail. A missing package is reported when
    it is needed."""
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        try:
            _install([*missing_packages(), *_without({**SIMULATED_NETWORKS, **HARDWARE_TOOLS})])
        except TestbedError as error:
            print(f"not installed: {error}", file=sys.stderr)


def install(programs: ProgramsByPackage) -> None:
    """Install the packages of programs that are not here."""
    _install(_without(programs))


def install_modules(modules: Mapping[str, str]) -> None:
    """Install the packages of these modules, by package, that the system's own Python has not."""
    _install([package for package, module in modules.items() if not _is_importable(module)])


def _is_importable(module: str) -> bool:
    command = [SYSTEM_PYTHON, "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _without(programs: ProgramsByPackage) -> list[str]:
    return [
        package
        for package, its in programs.items()
        if not all(shutil.which(program) for program in its)
    ]


def _install(packages: list[str]) -> None:
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
        return True  # Its package will be installed; then this is checked again.
    answer = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, check=False
    )
    return answer.returncode == 0
