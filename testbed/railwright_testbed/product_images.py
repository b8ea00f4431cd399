"""The images of the product as one OCI archive, assembled without a registry.

What the build files of ``images/`` take from a base image comes from this machine: its interpreter,
and the libraries that this has loaded once it has imported the product. Packages are installed
from a lock with hashes, ours from its wheel.

    /opt/railwright/python/       the interpreter, its libraries and its standard library
    /opt/railwright/packages/     compiled, as the containers' file systems are read-only

Nothing is below /usr, where the nodes of the testbed mount what this machine has.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright_testbed import binaries, oci
from railwright_testbed.errors import TestbedError

REPOSITORY = Path(__file__).resolve().parents[2]
PREFIX = "railwright.test/"
PACKAGES = "opt/railwright/packages"
_PREFIX = "opt/railwright/python"
# Tests, and a second client of kubernetes that is larger than all other packages.
_UNUSED = ("tests", "kubernetes/aio")
_USER = 65532
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """An image: the lock of its packages below ``images/``, none if it is the standard library
    alone; what it must be able to import; and what it runs."""

    name: str
    lock: str
    imports: tuple[str, ...]
    entrypoint: tuple[str, ...]


RECIPES = (
    Recipe(
        "operator",
        "operator.lock",
        ("railwright_operator.__main__", "railwright_mapper.__main__"),
        ("python3", "-m", "railwright_operator"),
    ),
    Recipe(
        "controllers",
        "operator.lock",
        ("railwright_controllers.__main__",),
        ("python3", "-m", "railwright_controllers"),
    ),
    Recipe(
        "agent",
        "agent.lock",
        ("railwright_agent.__main__",),
        ("python3", "-m", "railwright_agent"),
    ),
    Recipe("launcher", "", ("railwright.install",), ("python3", "-m", "railwright.install")),
)


def name_of(recipe: str) -> str:
    """The name under which nodes have the image of a recipe."""
    return f"{PREFIX}{recipe}:{version()}"


def version() -> str:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def write(path: Path, recipes: Sequence[Recipe] = RECIPES) -> dict[str, int]:
    """Write the archive; the bytes of each image. Raises TestbedError."""
    with tempfile.TemporaryDirectory() as folder:
        own = _own_layer(Path(folder))
        images = [_image(recipe, own, Path(folder)) for recipe in recipes]
        oci.write(path, images)
        return {
            recipe.name: sum(layer.stat().st_size for layer in image.layers)
            for recipe, image in zip(recipes, images, strict=True)
        }


def _image(recipe: Recipe, own: Path, folder: Path) -> oci.Image:
    layers = [own]
    packages = _packages(recipe.lock) if recipe.lock else None
    if packages is not None:
        layers.insert(0, packages.with_suffix(".layer"))
    base = folder / f"{recipe.name}.layer"
    _write_base(base, recipe, [*([packages] if packages else []), folder / "own"])
    settings = {
        "Entrypoint": list(recipe.entrypoint),
        "Env": [
            f"PATH=/{_PREFIX}/bin",
            f"LD_LIBRARY_PATH=/{_PREFIX}/lib",
            f"PYTHONPATH=/{PACKAGES}",
            "PYTHONUNBUFFERED=1",
            "LANG=C.UTF-8",
        ],
        "User": f"{_USER}:{_USER}",
        "WorkingDir": "/",
    }
    return oci.Image([name_of(recipe.name)], [base, *layers], settings)


def _packages(lock: str) -> Path:
    """The folder with the packages of a lock; its layer lies beside it."""
    text = (REPOSITORY / "images" / lock).read_bytes()
    folder = _cache(lock.removesuffix(".lock"), text)
    layer = folder.with_suffix(".layer")
    if not layer.exists():
        unfinished = _emptied(folder.with_suffix(".unfinished"))
        uv = Path(sys.executable).with_name("uv")
        install = [str(uv), "pip", "install", "--python", sys.executable, "--quiet"]
        locked = ["--require-hashes", "--no-deps", "-r", str(REPOSITORY / "images" / lock)]
        _run([*install, "--target", str(unfinished), *locked])
        for unused in [each for name in _UNUSED for each in unfinished.rglob(name)]:
            shutil.rmtree(unused)
        _compile(unfinished, f"/{PACKAGES}")
        unfinished.rename(_emptied(folder))
        with oci.new_layer(layer) as content:
            _add_tree(content, folder, PACKAGES)
    return folder


def _own_layer(folder: Path) -> Path:
    """Our own packages, from the wheel that users install."""
    wheels, unpacked, layer = folder / "wheels", folder / "own", folder / "own.layer"
    uv = Path(sys.executable).with_name("uv")
    build = [str(uv), "build", "--wheel", "--quiet", "--no-build-isolation"]
    _run([*build, "--python", sys.executable, "--out-dir", str(wheels), str(REPOSITORY)])
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    _compile(unpacked, f"/{PACKAGES}")
    with oci.new_layer(layer) as content:
        _add_tree(content, unpacked, PACKAGES)
    return layer


def _write_base(layer: Path, recipe: Recipe, paths: Sequence[Path]) -> None:
    """The interpreter with the libraries of what the image imports, and what programs expect."""
    python = Path(sys.base_prefix) / "bin" / "python3"
    root = layer.with_suffix("")
    program = "from railwright import interpreter; from pathlib import Path; import sys\n"
    program += "interpreter.copy(Path(sys.argv[1]), sys.argv[2:])"
    environment = {"PYTHONPATH": ":".join(map(str, paths)), "PATH": os.environ["PATH"]}
    _run([str(python), "-s", "-c", program, str(root / _PREFIX), *recipe.imports], environment)
    loader = root / _PREFIX / "loader"
    target = root / _linker(python).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    loader.rename(target)
    (library,) = (root / _PREFIX / "lib").glob("python3.*")
    _compile(library, f"/{_PREFIX}/lib/{library.name}")
    with oci.new_layer(layer) as content:
        content.folder("tmp", mode=0o1777)
        content.file("etc/passwd", f"railwright:x:{_USER}:{_USER}::/tmp:/sbin/nologin\n".encode())
        content.file("etc/group", f"railwright:x:{_USER}:\n".encode())
        content.file("etc/nsswitch.conf", b"hosts: files dns\n")
        content.tree(root)


def _linker(program: Path) -> str:
    """The path at which the kernel looks for a program's dynamic linker."""
    found = re.search(r"^\s*(/\S*/ld-\S+) \(", _run(["ldd", str(program)]), re.MULTILINE)
    if found is None:
        raise TestbedError(f"`ldd {program}` names no dynamic linker: a static interpreter?")
    return found[1]


def _add_tree(layer: oci.Layer, source: Path, prefix: str) -> None:
    parts = prefix.split("/")
    for count in range(1, len(parts) + 1):
        layer.folder("/".join(parts[:count]))
    layer.tree(source, prefix=f"{prefix}/")


def _compile(folder: Path, shown: str) -> None:
    """Compile all modules, to files that no time of their source makes invalid."""
    mode = ["--invalidation-mode", "unchecked-hash", "-q", "-q", "-j", "0", "-f"]
    _run([sys.executable, "-m", "compileall", *mode, "-s", str(folder), "-p", shown, str(folder)])


def _cache(name: str, *content: bytes) -> Path:
    key = hashlib.sha256(b"\0".join([sys.version.encode(), platform.machine().encode(), *content]))
    return binaries.cache_folder() / "images" / f"{name}-{key.hexdigest()[:16]}"


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    answer = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    if answer.returncode != 0:
        raise TestbedError(
            f"`{' '.join(command)[:200]}` ended with {answer.returncode}: "
            f"{answer.stderr.strip()[-2000:]}"
        )
    return answer.stdout
