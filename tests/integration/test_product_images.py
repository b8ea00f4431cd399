"""The images run with nothing but what is in them: unpacked, as the root of a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from railwright_mapper import messages
from railwright_operator import mapper_process
from railwright_testbed import product_images, python_layer

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT RUN: ONLY ROOT MAY CHANGE THE ROOT FOLDER OF A PROCESS"
)

TIMEOUT_S = 120.0
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"
MIB_MAX = 256
"""Unpacked."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "images.tar"
    sizes = product_images.write(path)
    assert max(sizes.values()) <= MIB_MAX * 2**20, sizes
    return path


class Unpacked:
    """An image as a folder, and how its containers start."""

    def __init__(self, archive: Path, name: str, folder: Path) -> None:
        self._folder = folder
        folder.chmod(0o755)
        with tarfile.open(archive) as tar:
            index = _read(tar, "index.json")
            (found,) = [
                each
                for each in index["manifests"]
                if each["annotations"]["io.containerd.image.name"] == name
            ]
            manifest = _blob(tar, found["digest"])
            self.settings = _blob(tar, manifest["config"]["digest"])["config"]
            for layer in manifest["layers"]:
                content = tar.extractfile(_path(layer["digest"]))
                with tarfile.open(fileobj=content) as tree:
                    tree.extractall(folder, filter="tar")

    def run(
        self, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, or its own, alone in its files, with its environment or another one."""
        return subprocess.run(
            [
                *(CHROOT, "--userspec=65532:65532", str(self._folder)),
                *(command or self.settings["Entrypoint"]),
            ],
            env=environment or dict(each.split("=", 1) for each in self.settings["Env"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("operator", "RAILWRIGHT_LAUNCHER_IMAGE is not set"),
        ("controllers", "RAILWRIGHT_AGENTS_URL is not set"),
        ("agent", "the following arguments are required: command"),
        ("launcher", "usage: python3 -m railwright.install FOLDER"),
    ],
)
def test_image_needs_nothing_else(archive: Path, tmp_path: Path, name: str, seen: str) -> None:
    image = Unpacked(archive, product_images.name_of(name), tmp_path)
    answer = image.run()
    assert answer.returncode != 0
    assert seen in answer.stdout + answer.stderr


def test_mapper_starts_in_the_image_of_the_operator(archive: Path, tmp_path: Path) -> None:
    """As the operator starts it: without any variable of the image."""
    image = Unpacked(archive, product_images.name_of("operator"), tmp_path)
    score = tmp_path / "proc/self/oom_score_adj"  # In place of the kernel's, which is not there.
    score.parent.mkdir(parents=True)
    score.touch(mode=0o666)
    score.chmod(0o666)
    command = [python_layer.PYTHON, *mapper_process.COMMAND[1:]]
    answer = image.run(*command, environment=mapper_process.ENVIRONMENT)
    assert answer.stdout.encode() == messages.READY, answer.stdout + answer.stderr


def _read(tar: tarfile.TarFile, path: str) -> Any:
    content = tar.extractfile(path)
    assert content is not None
    return json.load(content)


def _path(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _blob(tar: tarfile.TarFile, digest: str) -> Any:
    return _read(tar, _path(digest))
