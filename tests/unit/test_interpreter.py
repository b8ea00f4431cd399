"""The launcher starts in any image: in the image's own Python, or in the interpreter it brings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import launchers
from railwright import environment, protocol
from railwright.launcher import EXIT_BAD_ENVIRONMENT

TIMEOUT_S = 60.0

STARTED = "RAILWRIGHT_OPERATOR_URL"
"""The first variable that a launcher misses."""

LOADS = """
import asyncio, ctypes, encodings.idna, hashlib, json, ssl, sys
print(json.dumps(sys.path))
print(open("/proc/self/maps").read())
"""

# Of an image: what python3 is there, as a program around this interpreter.
AROUND = """#!{python}
import runpy, sys
{change}
sys.argv = sys.argv[1:]
if sys.argv[1:] != ["--check"]:
    open(__file__ + ".used", "w").close()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
IMAGES = {
    "none": None,
    "new": "",
    "old": "sys.version_info = (3, 6, 9)",
    "broken": "sys.exit('init_fs_encoding: failed to get the Python codec')",
    "without ctypes": "sys.modules['ctypes'] = None",
}


def test_interpreter_loads_nothing_of_the_image() -> None:
    folder = launchers.installed() / "interpreter"
    command = [f"{folder}/loader", "--library-path", f"{folder}/lib", f"{folder}/bin/python3"]
    answer = subprocess.run(
        [*command, "-E", "-s", "-c", LOADS], env={}, capture_output=True, text=True, check=True
    )
    path, _, maps = answer.stdout.partition("\n")
    assert all(each.startswith(str(folder)) for each in json.loads(path) if each)
    loaded = {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line}
    assert loaded
    assert not [each for each in loaded if not each.startswith(str(folder))]


@pytest.mark.parametrize("image", IMAGES)
def test_launcher_starts_in_every_image(tmp_path: Path, image: str) -> None:
    answer = launch(tmp_path, IMAGES[image])
    assert answer.returncode == EXIT_BAD_ENVIRONMENT, answer.stderr
    assert STARTED in answer.stderr
    assert (tmp_path / "python3.used").exists() == (image == "new")


def test_launcher_finds_its_package_with_a_safe_path(tmp_path: Path) -> None:
    """With PYTHONSAFEPATH the folder of a script is not searched."""
    answer = launch(tmp_path, "", PYTHONSAFEPATH="1")
    assert STARTED in answer.stderr
    assert (tmp_path / "python3.used").exists()


def test_ranks_get_the_libraries_that_the_image_preloads(tmp_path: Path) -> None:
    environ = launchers.environment_of("http://10.0.0.1:80", tmp_path)
    pod, kept = environment.pod(environ), {"RAILWRIGHT_LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}
    world = protocol.WorldInfo(
        *(1, 1, 0, "10.0.0.1", 20_000), group_rank=0, role_rank=0, role_size=1, group="worker"
    )
    rank = environment.of_rank(pod, world, local_rank=0, channel=tmp_path, env=environ | kept)
    assert rank["LD_PRELOAD"] == "/usr/lib/libjemalloc.so.2"


def launch(folder: Path, change: str | None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A launcher in an image with such a python3, that misses all its variables."""
    if change is not None:
        python = folder / "python3"
        python.write_text(AROUND.format(python=sys.executable, change=change))
        python.chmod(0o755)
    return subprocess.run(
        ["/bin/sh", str(launchers.installed() / "launch"), "--", "true"],
        env={"PATH": str(folder)} | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
