"""Kinds of other projects that clusters have beside ours, for tests of the chart and of the pages.

Their CustomResourceDefinitions are generated from the API packages of these projects, with the
generator that they use themselves.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from railwright_testbed import binaries, command, toolchain
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.errors import TestbedError

MONITORING = ("podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
"""Of the Prometheus operator."""

CERT_MANAGER = tuple(
    f"{each}.cert-manager.io"
    for each in ("certificaterequests", "certificates", "clusterissuers", "issuers")
)

_MODULE = "kinds"
_IMPORTED = re.compile(r'_ "(.+)"')


def prepare() -> None:
    """Generate them now, if that is possible. If not, that is reported when they are needed."""
    try:
        print(f"kinds of others\t{_folder()}")
    except (TestbedError, OSError) as error:
        print(f"not generated: {error}", file=sys.stderr)


def install(plane: ControlPlane, names: tuple[str, ...]) -> None:
    """Apply these kinds; return once the API server has them."""
    files = (f"-f={_folder() / _file_of(name)}" for name in names)
    plane.kubectl("apply", "--server-side", *files)
    waited = (f"crd/{name}" for name in names)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *waited)


def _file_of(name: str) -> str:
    """As the generator names it."""
    plural, _, group = name.partition(".")
    return f"{group}_{plural}.yaml"


def _folder() -> Path:
    """The folder of the definitions, generated once into the cache."""
    folder = binaries.built_folder(_MODULE)
    with binaries.building(folder):
        if not folder.exists():
            _generate(folder)
    return folder


def _generate(folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    go = toolchain.go(binaries.cache_folder())
    # The generator runs the go command too.
    path = f"{go.parent}:{os.environ['PATH']}"
    module = binaries.MODULES / _MODULE
    packages = _IMPORTED.findall((module / "kinds.go").read_text(encoding="utf-8"))
    command.output(
        [
            *(str(go), "-C", str(module), "tool", "controller-gen"),
            *("crd:maxDescLen=0", f"output:crd:dir={unfinished}"),
            *(f"paths={package}" for package in packages),
        ],
        environment={**os.environ, "CGO_ENABLED": "0", "PATH": path},
    )
    unfinished.rename(folder)
