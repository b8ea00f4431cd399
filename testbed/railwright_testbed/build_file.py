"""Images built from a build file, as ``docker build`` does, without its daemon.

BuildKit is what builds in Docker too. The base image, which Docker pulls, is assembled from this
machine's Python: an interpreter with pip, a shell and rm.
"""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from railwright_testbed import binaries, command, oci, product_images, python_layer
from railwright_testbed.processes import Process

BASE = "python:3.12-slim-bookworm"
"""What the build file calls it."""

_SOCKET_DEADLINE_S = 30.0
_BUILD_DEADLINE_S = 600.0
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_GLIBC = """import ctypes
for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1"):
    ctypes.CDLL(name)
"""
"""Libraries that a base image has, and uv loads."""

_PIP = f"""#!{python_layer.PYTHON}
import sys
from pip._internal.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Builder:
    """A daemon that builds; ``base`` is the folder of its base image."""

    address: str
    base: Path

    def build(self, context: Path, *, file: str, target: str, tag: str, archive: Path) -> None:
        """Build the target of a file in the context, and write the image as an archive.

        Raises TestbedError with the end of what it printed.
        """
        (entry,) = json.loads((self.base / "index.json").read_text())["manifests"]
        program = str(binaries.find(binaries.BUILDERS)["buildctl"])
        path = context / file
        options = [
            *("--frontend=dockerfile.v0", f"--opt=filename={path.name}", f"--opt=target={target}"),
            *(f"--local=context={context}", f"--local=dockerfile={path.parent}"),
            f"--oci-layout=base={self.base}",
            f"--opt=context:{BASE}=oci-layout://base@{entry['digest']}",
            *(f"--output=type=oci,dest={archive},name={tag}", "--progress=plain"),
        ]
        command.output(
            [program, f"--addr={self.address}", "build", *options], deadline_s=_BUILD_DEADLINE_S
        )


@contextlib.contextmanager
def builder(folder: Path) -> Iterator[Builder]:
    """Start the daemon, with its state in this folder."""
    base = folder / "base"
    _write_base(folder, base)
    socket = folder / "buildkit.sock"
    daemon = Process(
        "buildkitd",
        [
            str(binaries.find(binaries.BUILDERS)["buildkitd"]),
            *(f"--root={folder / 'state'}", f"--addr=unix://{socket}"),
            *("--oci-worker=true", "--containerd-worker=false"),
        ],
        log=folder / "buildkitd.log",
        records=folder / "records",
    )
    try:
        daemon.until(socket.exists, "its socket", deadline_s=_SOCKET_DEADLINE_S)
        yield Builder(f"unix://{socket}", base)
    finally:
        daemon.end()


def _write_base(folder: Path, base: Path) -> None:
    interpreter, programs = folder / "interpreter.layer", folder / "programs.layer"
    (folder / "glibc.py").write_text(_GLIBC)
    python_layer.write(
        interpreter,
        imports=("bz2", "lzma", "sqlite3", "ssl", "uuid", "glibc"),
        paths=[product_images.REPOSITORY / "worker", folder],
    )
    product_images.install_packages(folder / "pip", "pip")
    with oci.new_layer(programs) as content:
        content.tree(folder / "pip", prefix=f"{python_layer.PACKAGES}/")
        content.file(f"{python_layer.PREFIX}/bin/pip", _PIP.encode(), mode=0o755)
        for program in (Path("/bin/sh"), Path("/bin/rm")):
            content.file(str(program)[1:], program.resolve().read_bytes(), mode=0o755)
        content.file(_CERTIFICATES[1:], Path(_CERTIFICATES).read_bytes())
    # The package index of this machine, where it has another than the public one.
    index = [f"{name}={value}" for name, value in os.environ.items() if name.endswith("INDEX_URL")]
    path = f"PATH={python_layer.PROGRAMS}:/bin"
    settings = {"Env": [path, f"SSL_CERT_FILE={_CERTIFICATES}", *index]}
    oci.write(folder / "base.tar", [oci.Image([BASE], [interpreter, programs], settings)])
    with tarfile.open(folder / "base.tar") as archive:
        archive.extractall(base, filter="data")
