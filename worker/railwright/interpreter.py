"""Copies the interpreter that runs this, for images whose Python is too old or missing.

    FOLDER/loader                the dynamic linker
    FOLDER/bin/python3           the interpreter
    FOLDER/lib/                  the libraries that it has loaded
    FOLDER/lib/python3.X/        the standard library

The loader is started with ``--library-path FOLDER/lib``, so that nothing of the image is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
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
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # glibc loads it when a thread ends.
    library = Path(sysconfig.get_path("stdlib"))
    _copy_tree(library, folder / "lib" / library.name)
    (folder / "lib" / library.name / "site-packages").mkdir(exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    shutil.copy(os.readlink("/proc/self/exe"), folder / "bin" / "python3")
    extensions = [library, *map(Path, filter(None, _package_folders()))]
    for loaded in _loaded():
        if _LOADER.fullmatch(loaded.name):
            shutil.copy(loaded, folder / "loader")
        if not any(loaded.is_relative_to(each) for each in extensions):
            shutil.copy(loaded, folder / "lib" / loaded.name)
            for name in _shorter_names(loaded.name):
                _link(folder / "lib" / name, loaded.name)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy content and times, by which compiled files are valid; nothing else, as a volume may
    refuse attributes."""
    for place, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not _is_left_out(name)]
        copied = target / Path(place).relative_to(source)
        copied.mkdir(parents=True, exist_ok=True)
        for name in files:
            if not _is_left_out(name):
                shutil.copyfile(Path(place, name), copied / name)
                times = Path(place, name).stat()
                os.utime(copied / name, ns=(times.st_atime_ns, times.st_mtime_ns))


def _is_left_out(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in _LEFT_OUT)


def _package_folders() -> Iterator[str]:
    """Where packages are, whose libraries are their own."""
    yield from (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    yield from os.environ.get("PYTHONPATH", "").split(os.pathsep)


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
