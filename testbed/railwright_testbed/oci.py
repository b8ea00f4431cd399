"""OCI image archives, as container runtimes import them: layers, a configuration, a manifest.

Layers are tar files without times and owners, so the same content has the same digest.
The form is that of the OCI image specification, version 1.1.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Image:
    """``names`` it is found by, the files of its ``layers`` from the bottom up, and how containers
    start: ``settings`` as in an image's configuration."""

    names: Sequence[str]
    layers: Sequence[Path]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in the making."""

    tar: tarfile.TarFile

    def folder(self, name: str, *, mode: int = 0o755) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self.tar.addfile(entry)

    def file(self, name: str, content: bytes, *, mode: int = 0o644) -> None:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), mode
        self.tar.addfile(entry, io.BytesIO(content))

    def link(self, name: str, target: str) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self.tar.addfile(entry)

    def tree(self, source: Path, *, prefix: str = "") -> None:
        """All that is below a folder, in the order of its names."""
        for path in sorted(source.rglob("*")):
            name = f"{prefix}{path.relative_to(source)}"
            if path.is_symlink():
                self.link(name, str(path.readlink()))
            elif path.is_dir():
                self.folder(name)
            else:
                is_program = bool(path.stat().st_mode & 0o100)
                self.file(name, path.read_bytes(), mode=0o755 if is_program else 0o644)


@contextlib.contextmanager
def new_layer(path: Path) -> Iterator[Layer]:
    """Write a layer; the file is there once it is complete."""
    unfinished = path.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:
        yield Layer(tar)
    unfinished.replace(path)


def write(path: Path, images: Sequence[Image]) -> None:
    """Write one archive with all of these images."""
    with tarfile.open(path, "w") as tar:
        archive = _Archive(Layer(tar))
        manifests = [entry for image in images for entry in archive.add(image)]
        index = {"mediaType": f"{_MEDIA}.index.v1+json", "manifests": manifests}
        archive.layer.file("index.json", _json({"schemaVersion": 2, **index}))
        archive.layer.file("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))


class _Archive:
    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._written: set[str] = set()

    def add(self, image: Image) -> Iterator[dict[str, Any]]:
        """Add an image; its entries in the index, one for each name."""
        layers = [self._add(path.read_bytes(), "layer.v1.tar") for path in image.layers]
        config = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": image.settings,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": self._add(_json(config), "config.v1+json"),
            "layers": layers,
        }
        entry = self._add(_json(manifest), "manifest.v1+json")
        for name in image.names:
            yield {**entry, "annotations": {"io.containerd.image.name": name}}

    def _add(self, content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._written:
            self.layer.file(f"blobs/sha256/{digest}", content)
            self._written.add(digest)
        return {
            "mediaType": f"{_MEDIA}.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(content),
        }


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
