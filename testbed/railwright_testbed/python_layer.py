"""A layer of an image with this machine's Python, in place of a base image from a registry.

    /opt/railwright/      the interpreter and its standard library, compiled
    /lib*/                the dynamic linker, and the libraries that are loaded once the interpreter
                          has imported what the image is for

Nothing is below /usr, where the nodes of the testbed mount what this machine has.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from railwright_testbed import command, oci
from railwright_testbed.errors import TestbedError

PREFIX = "opt/railwright"
PROGRAMS = f"/{PREFIX}/bin"
PYTHON = f"{PROGRAMS}/python3"
_LIBRARY = f"{PREFIX}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"{_LIBRARY}/site-packages"
USER = 65532


def write(layer: Path, *, imports: Sequence[str], paths: Sequence[Path] = ()) -> None:
    """Write the layer, for programs that import these modules, which are found in these folders."""
    python, root = Path(sys.base_prefix) / "bin" / "python3", layer.with_suffix("")
    program = "from railwright import interpreter; from pathlib import Path; import sys\n"
    program += "interpreter.copy(Path(sys.argv[1]), sys.argv[2:])"
    environment = {"PYTHONPATH": ":".join(map(str, paths)), "PATH": os.environ["PATH"]}
    arguments = [str(python), "-s", "-c", program, str(root / PREFIX), *imports]
    command.output(arguments, environment=environment)
    linker, libraries = _linker(python)
    for path in (linker, libraries / "any"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / PREFIX / "loader").rename(root / linker)
    for library in (root / PREFIX / "lib").glob("*.so*"):
        library.rename(root / libraries / library.name)
    compile_modules(root / _LIBRARY, f"/{_LIBRARY}")
    with oci.new_layer(layer) as content:
        content.folder("tmp", mode=0o1777)
        content.file("etc/passwd", f"railwright:x:{USER}:{USER}::/tmp:/sbin/nologin\n".encode())
        content.file("etc/group", f"railwright:x:{USER}:\n".encode())
        content.file("etc/nsswitch.conf", b"hosts: files dns\n")
        content.tree(root)


def _linker(program: Path) -> tuple[Path, Path]:
    """Where the kernel looks for the dynamic linker of a program, and where that looks for
    libraries by itself, both below the root folder: not in /usr, where this machine may have them.
    """
    printed = command.output(["ldd", str(program)])
    linker = re.search(r"^\s*/(\S*/ld-\S+) \(", printed, re.MULTILINE)
    libc = re.search(r"=> (\S*/libc\.so\S*) \(", printed)
    if linker is None or libc is None:
        raise TestbedError(f"`ldd {program}` names no libc: a static interpreter?\n{printed}")
    libraries = Path(libc[1]).parent.resolve()
    root = Path("/usr") if libraries.is_relative_to("/usr") else Path("/")
    return Path(linker[1]), libraries.relative_to(root)


def compile_modules(folder: Path, shown: str) -> None:
    """Compile all modules, to files that no time of their source makes invalid."""
    mode = ["--invalidation-mode", "unchecked-hash", "-q", "-q", "-j", "0", "-f"]
    command.output(
        [sys.executable, "-m", "compileall", *mode, "-s", str(folder), "-p", shown, str(folder)]
    )
