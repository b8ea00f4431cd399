"""Copies the interpreter that runs this, for images whose Python is too old or missing.

    FOLDER/loader                the dynamic linker
    FOLDER/bin/python3           the interpreter
    FOLDER/lib/                  the libraries that it has loaded
    FOLDER/lib/python3.X/        the standard library

The loader is started with ``--library-path FOLDER/lib``, so that nothing of the image is needed.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

_LOADER = re.compile(r"ld-[^/]*\.so[^/]*")
_LIBRARY = re.compile(r"(.+\.so)((?:\.\d+)*)")
_LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "config-*",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "tkinter",
    "turtledemo",
    "*.opt-*.pyc",
    "_test*.so",
)


def copy(folder: Path, modules: Iterable[str]) -> None:
    """Copy it into this folder, which need not exist, with the libraries that are loaded once these
    modules are imported. Raises OSError and ImportError."""
    for module in modules:
        importlib.import_module(module)
    library = Path(sysconfig.get_path("stdlib"))
    target = folder / "lib" / library.name
    packages = [library, *(Path(each) for each in sys.path if os.path.isabs(each))]
    ignored = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree(library, target, ignore=ignored, dirs_exist_ok=True)
    (target / "site-packages").mkdir(exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    shutil.copy(os.readlink("/proc/self/exe"), folder / "bin" / "python3")
    for loaded in _loaded():
        if _LOADER.fullmatch(loaded.name):
            shutil.copy(loaded, folder / "loader")
        if not any(loaded.is_relative_to(each) for each in packages):
            shutil.copy(loaded, folder / "lib" / loaded.name)
            for name in _shorter_names(loaded.name):
                _link(folder / "lib" / name, loaded.name)


def _loaded() -> Iterator[Path]:
    """The shared objects of this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    for path in sorted(paths):
        if _LIBRARY.fullmatch(path):
            yield Path(path)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _shorter_names(name: str) -> Iterator[str]:
    """The names by which programs ask for a library: for libz.so.1.2.13 by libz.so.1."""
    found = _LIBRARY.fullmatch(name)
    assert found is not None, "only such names are loaded"
    base, numbers = found[1], found[2].split(".")[1:]
    for count in range(len(numbers)):
        yield ".".join([base, *numbers[:count]])
