"""Imports point one way. The contracts are in pyproject.toml; docs/architecture.md draws them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from architecture import tree
from architecture.tree import Finding

OWN = frozenset(Path(package).name for package in tree.PACKAGES)

# import-linter sees which of the listed packages a part imports, but cannot say "and no other".
OUTSIDE_PACKAGES = {
    "worker/railwright": frozenset({"torch"}),
    "topology/railwright_agent": frozenset({"numpy", "torch"}),
    "topology/railwright_topology": frozenset({"networkx", "numpy", "yaml"}),
    "scheduler/railwright_scheduler": frozenset({"numpy"}),
    "operator/railwright_api": frozenset({"pydantic", "yaml"}),
    "operator/railwright_cli": frozenset(
        {"kubernetes", "msgspec", "networkx", "pydantic", "rich", "typer", "urllib3", "yaml"}
    ),
    "operator/railwright_conversion": frozenset(),
    # yarl and urllib3 are the URLs of aiohttp and the errors of kubernetes' client.
    "operator/railwright_kube": frozenset(
        {
            "aiohttp",
            "google",
            "jwt",
            "kubernetes",
            "msgspec",
            "orjson",
            "prometheus_client",
            "urllib3",
            "yaml",
            "yarl",
        }
    ),
    "operator/railwright_mapper": frozenset({"msgspec"}),
    "operator/railwright_process": frozenset(
        {"aiohttp", "cryptography", "orjson", "prometheus_client", "pythonjsonlogger"}
    ),
    "operator/railwright_watch": frozenset({"msgspec"}),
    "operator/railwright_controllers": frozenset(
        {"kopf", "msgspec", "orjson", "prometheus_client"}
    ),
    "operator/railwright_operator": frozenset(
        {
            "aiohttp",
            "kubernetes",
            "msgspec",
            "numpy",
            "orjson",
            "prometheus_client",
            "pydantic",
        }
    ),
}

# What a user's image may have or lack: nothing that every script or pod imports may need it.
WORKER_IF_PRESENT = ("torch", "numpy")
WORKER_ENTRIES = ("railwright", "railwright.launcher", "railwright.install")


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"]
    answer = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("package", tree.PACKAGES)
def test_each_part_imports_only_its_allowed_packages(package: str) -> None:
    files = tree.python_files(package)
    assert files, f"{package} holds no Python file"
    allowed = OUTSIDE_PACKAGES[package] | OWN
    findings = [
        Finding(tree.name_of(path), line, f"imports {name}")
        for path in files
        for name, line in _imports(tree.parse(path))
        if name not in allowed and name not in sys.stdlib_module_names
    ]
    assert not findings, tree.report(findings, f"{package} may import only {sorted(allowed)}")


def test_shared_messages_import_the_standard_library_alone() -> None:
    files = [tree.ROOT / "worker/railwright" / name for name in ("codec.py", "protocol.py")]
    findings = [
        Finding(tree.name_of(path), line, f"imports {name}")
        for path in files
        for name, line in _imports(tree.parse(path))
        if name not in sys.stdlib_module_names and name != "railwright"
    ]
    assert not findings, tree.report(findings, "both are copied into users' images as they are")


def test_the_worker_imports_where_there_is_no_torch() -> None:
    # None in sys.modules makes an import fail as if the package were not installed.
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in WORKER_IF_PRESENT)
    program = f"import sys; {hidden}import {', '.join(WORKER_ENTRIES)}"
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch.distributed\n", [("torch", 1)]),
        ("from numpy import array\n", [("numpy", 1)]),
        ("def f():\n    import torch\n", [("torch", 2)]),
        ("from . import protocol\n", []),
    ],
)
def test_the_check_sees_an_import(source: str, expected: list[tuple[str, int]]) -> None:
    assert list(_imports(ast.parse(source))) == expected


def _imports(module: ast.Module) -> Iterator[tuple[str, int]]:
    """The top-level package of each import, and its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0], node.lineno
