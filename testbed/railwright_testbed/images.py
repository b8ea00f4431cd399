"""The pod images of the testbed: an empty root into which the host's own Python is mounted.

No registry is needed. An image has a few folders and files and the environment variables; the
programs come in by read-only mounts that the nodes' container runtime adds to every container, so
a pod's YAML does not mention them. Programs of the host run in the pod, torch included.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright_testbed import oci, pause

# Not `latest`: for that tag a kubelet would contact a registry.
POD_IMAGE = "railwright.test/python:1"
SECOND_POD_IMAGE = "railwright.test/python:2"
"""For a role with an image of its own: the same files, and another value of VARIABLE."""
VARIABLE = "TESTBED_IMAGE"
"""The environment variable in which a container has the name of its image."""

_REPOSITORY = Path(__file__).resolve().parents[2]
_SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOUNTED_FROM_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl")
_USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"


@dataclass(frozen=True, slots=True)
class HostPython:
    """The Python that pods get."""

    base: Path
    environment: Path


def host_python() -> HostPython:
    """The virtual environment this runs in, or the repository's, or the bare interpreter."""
    base = Path(sys.base_prefix)
    if sys.prefix != sys.base_prefix:
        return HostPython(base, Path(sys.prefix))
    repository = _REPOSITORY / ".venv"
    return HostPython(base, repository if (repository / "bin" / "python3").exists() else base)


def mounts() -> list[dict[str, Any]]:
    """The read-only mounts of every container, in the form of the OCI runtime specification."""
    python = host_python()
    # The repository too: an editable installation leads into its source folders.
    required = [Path("/usr"), python.base, python.environment, _REPOSITORY]
    required += [Path("/", name) for name in _SYSTEM_FOLDERS if not Path("/", name).is_symlink()]
    required += [Path(name) for name in _MOUNTED_FROM_ETC]
    chosen: list[Path] = []
    for path in sorted({path.resolve() for path in required if path.exists()}):
        if not any(path.is_relative_to(above) for above in chosen):
            chosen.append(path)
    return [
        {
            "type": "bind",
            "source": str(path),
            "destination": str(path),
            "options": ["rbind", "rprivate", "ro"],
        }
        for path in chosen
    ]


def write_archive(path: Path) -> None:
    """Write an OCI image archive with all images, which share one layer."""
    layer = path.with_suffix(".layer")
    with oci.new_layer(layer) as content:
        _fill(content)
    first = oci.Image([POD_IMAGE], [layer], _settings(POD_IMAGE))
    second = oci.Image([SECOND_POD_IMAGE], [layer], _settings(SECOND_POD_IMAGE))
    oci.write(path, [first, second])
    layer.unlink()


def _settings(name: str) -> dict[str, Any]:
    """How containers of this image start, as its configuration has it."""
    python = host_python()
    folders = [python.environment / "bin", python.base / "bin"]
    system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {
        "Env": [
            f"PATH={':'.join([*map(str, folders), *system])}",
            # The packages are mounted read-only, and logs should come line by line.
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
            # The ranks of all nodes share the processors of this machine.
            "OMP_NUM_THREADS=1",
            "HOME=/root",
            "LANG=C.UTF-8",
            f"{VARIABLE}={name}",
        ],
        # The first image is the nodes' pause image too.
        "Entrypoint": ["/pause"],
        "WorkingDir": "/",
    }


def _fill(layer: oci.Layer) -> None:
    for name, mode in (("etc", 0o755), ("root", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777)):
        layer.folder(name, mode=mode)
    layer.file("pause", pause.program(), mode=0o755)
    layer.file("etc/passwd", _USERS.encode())
    layer.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    layer.file("etc/nsswitch.conf", b"hosts: files dns\n")
    for name in _SYSTEM_FOLDERS:
        if Path("/", name).is_symlink():
            layer.link(name, os.readlink(f"/{name}"))
