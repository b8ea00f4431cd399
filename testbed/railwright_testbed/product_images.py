"""The images of the product as one OCI archive, assembled without a registry.

What the build file takes from a base image comes from this machine (``python_layer``). Packages are
installed from a lock with hashes, ours from its wheel; they lie beside the interpreter, compiled,
as the containers' file systems are read-only.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from railwright_testbed import binaries, command, later_version, oci, python_layer

REPOSITORY = Path(__file__).resolve().parents[2]
REGISTRY = "railwright.test"
_UV = str(Path(sys.executable).with_name("uv"))
# Tests, and a second client of kubernetes that is larger than all other packages.
_UNUSED = ("tests", "kubernetes/aio")


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


ON_NODES = ("agent", "launcher")


def name_of(recipe: str, tag: str = "") -> str:
    """The name under which nodes have the image of a recipe."""
    return f"{REGISTRY}/railwright-{recipe}:{tag or version()}"


def version() -> str:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def write(path: Path, *, of_nodes: Path | None = None) -> dict[str, int]:
    """Write the archive, with the images of a later version too; the bytes of each of ours. An
    archive ``of_nodes`` has those that run on every node only.

    Raises TestbedError.
    """
    with tempfile.TemporaryDirectory() as folder:
        own, later = Path(folder) / "own", Path(folder) / "later"
        _install_own(own)
        later_version.packages(own, later)
        base = Path(folder) / "base.layer"
        python_layer.write(
            base,
            imports=[module for recipe in RECIPES for module in recipe.imports],
            paths=[own, *(_packages(recipe.lock) for recipe in RECIPES if recipe.lock)],
        )
        images = []
        for packages, tag in ((own, version()), (later, later_version.VERSION)):
            _write_packages(packages)
            images += [_image(recipe, base, packages, tag) for recipe in RECIPES]
        oci.write(path, images)
        if of_nodes is not None:
            names = {
                name_of(recipe, tag) for recipe in ON_NODES for tag in ("", later_version.VERSION)
            }
            oci.write(of_nodes, [image for image in images if names.intersection(image.names)])
        return {
            recipe.name: sum(layer.stat().st_size for layer in image.layers)
            for recipe, image in zip(RECIPES, images, strict=False)
        }


def _image(recipe: Recipe, base: Path, own: Path, tag: str) -> oci.Image:
    packages = [_packages(recipe.lock)] if recipe.lock else []
    settings = {
        "Entrypoint": list(recipe.entrypoint),
        "Env": [f"PATH={python_layer.PROGRAMS}", "PYTHONUNBUFFERED=1", "LANG=C.UTF-8"],
        "User": f"{python_layer.USER}:{python_layer.USER}",
        "WorkingDir": "/",
    }
    layers = [base, *(each.with_suffix(".layer") for each in (*packages, own))]
    return oci.Image([name_of(recipe.name, tag)], layers, settings)


def _packages(lock: str) -> Path:
    """The folder with the packages of a lock; its layer lies beside it."""
    path = REPOSITORY / "images" / lock
    folder = _cache(lock.removesuffix(".lock"), path.read_bytes(), *map(str.encode, _UNUSED))
    with binaries.building(folder):
        if not folder.with_suffix(".layer").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install_packages(folder, "--require-hashes", "-r", str(path))
            for unused in [each for name in _UNUSED for each in folder.rglob(name)]:
                shutil.rmtree(unused)
            _write_packages(folder)
    return folder


def _install_own(folder: Path) -> None:
    """Our own packages, from the wheel that users install."""
    wheels = folder.with_suffix(".wheels")
    build = [_UV, "build", "--wheel", "--quiet", "--no-build-isolation"]
    command.output([*build, "--python", sys.executable, "--out-dir", str(wheels), str(REPOSITORY)])
    (wheel,) = wheels.glob("*.whl")
    install_packages(folder, str(wheel))


def install_packages(target: Path, *what: str) -> None:
    """Install these into a folder, without what they need themselves. Raises TestbedError."""
    install = [_UV, "pip", "install", "--python", sys.executable, "--quiet", "--no-deps"]
    command.output([*install, "--target", str(target), *what])


def _write_packages(folder: Path) -> None:
    shown = python_layer.PACKAGES
    python_layer.compile_modules(folder, f"/{shown}")
    with oci.new_layer(folder.with_suffix(".layer")) as content:
        parts = shown.split("/")
        for count in range(1, len(parts) + 1):
            content.folder("/".join(parts[:count]))
        content.tree(folder, prefix=f"{shown}/")


def _cache(name: str, *content: bytes) -> Path:
    key = hashlib.sha256(b"\0".join([sys.version.encode(), platform.machine().encode(), *content]))
    return binaries.cache_folder() / "images" / f"{name}-{key.hexdigest()[:16]}"
