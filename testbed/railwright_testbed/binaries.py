"""The programs of the testbed: found on this machine, or built from their Go modules once.

Each program is searched in this order: the folder in KUBEBUILDER_ASSETS (any version), PATH (if the
version is right), the cache (built before). If it is in none of them, it is built into the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from railwright_testbed import toolchain
from railwright_testbed.errors import TestbedError

MODULES = Path(__file__).resolve().parent.parent
"""The folder with a folder for each Go module."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: its name here, its module folder, and what its version output must hold."""

    name: str
    module: str
    version_flag: str
    version_seen: str
    # What `go build` calls it, where that is not its name.
    built_as: str = ""


_KUBERNETES_VERSION = "v1.36.3"
_KUBERNETES_FLAGS = f"-s -w -X k8s.io/component-base/version.gitVersion={_KUBERNETES_VERSION}"
_LINK_FLAGS = {
    # Without its own version string the API server answers one that kubectl cannot parse.
    "kubernetes": _KUBERNETES_FLAGS,
    "services": _KUBERNETES_FLAGS,
    "dns": "-s -w",
    "helm": "-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1",
    "buildkit": "-s -w",
    "cert-manager": "-s -w",
    "containerd": "-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2",
}
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
SIMULATED_NODES = ("kwok",)
CLIENTS = ("helm",)
BUILDERS = ("buildctl", "buildkitd")
CERT_MANAGER = ("cert-manager-controllers",)
REAL_NODES = (
    "kubelet",
    "kube-proxy",
    "kube-scheduler",
    "coredns",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
)
_PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "kubernetes", "--version", "etcd Version: 3.6.", built_as="server"),
        Program("kube-apiserver", "kubernetes", "--version", "Kubernetes v1.36."),
        Program("kube-controller-manager", "kubernetes", "--version", "Kubernetes v1.36."),
        Program("kubectl", "kubernetes", "version --client", "Client Version: v1.36."),
        Program("kubelet", "kubernetes", "--version", "Kubernetes v1.36."),
        Program("kube-proxy", "services", "--version", "Kubernetes v1.36."),
        Program("kube-scheduler", "services", "--version", "Kubernetes v1.36."),
        Program("coredns", "dns", "-version", "CoreDNS-1.15."),
        Program("kwok", "kubernetes", "--version", "v0.8."),
        Program("helm", "helm", "version --short", "v4.3."),
        Program("buildctl", "buildkit", "--version", "github.com/moby/buildkit"),
        Program("buildkitd", "buildkit", "--version", "github.com/moby/buildkit"),
        Program("cert-manager-controllers", "cert-manager", "--version", "of this testbed"),
        Program("containerd", "containerd", "--version", " v2."),
        Program("containerd-shim-runc-v2", "containerd", "-v", "v2."),
        Program("ctr", "containerd", "--version", " v2."),
    )
}


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "railwright"


def find(names: Iterable[str]) -> dict[str, Path]:
    """The path of each named program; builds missing ones."""
    found: dict[str, Path] = {}
    for name in names:
        program = _PROGRAMS[name]
        path = _from_assets(program) or _from_path(program) or _from_cache(program)
        found[name] = path or _build(program)
    return found


def _from_assets(program: Program) -> Path | None:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    path = Path(folder) / program.name
    return path if os.access(path, os.X_OK) else None


def _from_path(program: Program) -> Path | None:
    found = shutil.which(program.name)
    if found is None:
        return None
    command = [found, *program.version_flag.split()]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return Path(found) if program.version_seen in answer.stdout + answer.stderr else None


def _from_cache(program: Program) -> Path | None:
    path = built_folder(program.module) / program.name
    return path if path.exists() else None


def built_folder(module: str) -> Path:
    """Where a Go module is built, in the cache. Its key is everything that goes into the build, so
    that two versions never mix."""
    key = hashlib.sha256(_LINK_FLAGS.get(module, "").encode() + platform.machine().encode())
    folder = MODULES / module
    for path in (folder / "go.mod", folder / "go.sum", *sorted(folder.rglob("*.go"))):
        key.update(path.read_bytes())
    return cache_folder() / "binaries" / f"{module}-{key.hexdigest()[:16]}"


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """Alone build a folder of the cache: who comes second waits, and finds the result."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(program: Program) -> Path:
    folder = built_folder(program.module)
    with building(folder):
        if not folder.exists():
            _build_module(program.module, folder)
    path = folder / program.name
    if not path.exists():
        raise TestbedError(
            f"the build of testbed/{program.module} left no {program.name} in {folder}, only "
            f"{sorted(p.name for p in folder.iterdir())}: delete that folder and build again"
        )
    return path


def _build_module(module: str, folder: Path) -> None:
    started_s = time.monotonic()
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    go = toolchain.go(cache_folder())
    print(f"building testbed/{module} with {go} (minutes the first time)", file=sys.stderr)
    command = [str(go), "build", "-ldflags", _LINK_FLAGS[module], "-o", f"{unfinished}/", "tool"]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    answer = subprocess.run(
        command, cwd=MODULES / module, env=environment, stdout=sys.stderr, check=False
    )
    if answer.returncode != 0:
        raise TestbedError(
            f"`go build` of testbed/{module} ended with {answer.returncode}; its output is "
            "above on stderr. It needs the Go module proxy (GOPROXY) and about 4 GB of disk."
        )
    for program in _PROGRAMS.values():
        if program.module == module and program.built_as:
            (unfinished / program.built_as).rename(unfinished / program.name)
    unfinished.rename(folder)
    print(f"built testbed/{module} in {time.monotonic() - started_s:.0f} s", file=sys.stderr)
