"""The one pod image of the testbed: an empty root into which the host's own Python is mounted.

No registry is needed. The image has a few folders and files and the environment variables; the
programs come in by read-only mounts that the nodes' container runtime adds to every container, so
a pod's YAML does not mention them. Programs of the host run in the pod, torch included.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright_testbed import pause

# Not `latest`: for that tag a kubelet would contact a registry.
POD_IMAGE = "railwright.test/python:1"
LAUNCHER_IMAGE = "railwright.test/launcher:1"

_REPOSITORY = Path(__file__).resolve().parents[2]
_SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOUNTED_FROM_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl")
_USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


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
    """An OCI image archive with both names for the same content."""
    layer = _layer()
    config = _json_bytes(_config(layer))
    manifest = _json_bytes(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    described = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {**described, "annotations": {"io.containerd.image.name": name}}
            for name in (POD_IMAGE, LAUNCHER_IMAGE)
        ],
    }
    with tarfile.open(path, "w") as archive:
        _add_file(archive, "oci-layout", _json_bytes({"imageLayoutVersion": "1.0.0"}))
        _add_file(archive, "index.json", _json_bytes(index))
        for blob in (layer, config, manifest):
            _add_file(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)


def _layer() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for name, mode in (("etc", 0o755), ("root", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777)):
            _add_folder(layer, name, mode)
        _add_file(layer, "pause", pause.program(), mode=0o755)
        _add_file(layer, "etc/passwd", _USERS.encode())
        _add_file(layer, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        _add_file(layer, "etc/nsswitch.conf", b"hosts: files dns\n")
        for name in _SYSTEM_FOLDERS:
            if Path("/", name).is_symlink():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
                layer.addfile(link)
    return content.getvalue()


def _config(layer: bytes) -> dict[str, Any]:
    python = host_python()
    folders = [python.environment / "bin", python.base / "bin"]
    system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Env": [
                f"PATH={':'.join([*map(str, folders), *system])}",
                # The packages are mounted read-only, and logs should come line by line.
                "PYTHONDONTWRITEBYTECODE=1",
                "PYTHONUNBUFFERED=1",
                "HOME=/root",
                "LANG=C.UTF-8",
            ],
            # The image is the nodes' pause image too.
            "Entrypoint": ["/pause"],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode = tarfile.DIRTYPE, mode
    archive.addfile(folder)


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    archive.addfile(file, io.BytesIO(content))


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
