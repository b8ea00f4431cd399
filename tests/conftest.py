"""What holds for all tests: those with real nodes need root, and are never left out in silence."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

import railwright_testbed

TESTS = Path(__file__).parent
E2E = TESTS / "e2e"
NOT_ROOT = "NOT RUN: REAL NODES NEED ROOT (RUN THIS AS ROOT, OR IN CI)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side, each worker has a site of its own; the five real nodes are too much to have
    twice."""
    for item in items:
        path = item.path.relative_to(TESTS)
        group = path.parts[0] if item.path.is_relative_to(E2E) else str(path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A user who cannot have real nodes skips their tests; for root, what is missing fails them."""
    if not item.path.is_relative_to(E2E):
        return
    if os.geteuid() != 0:
        pytest.skip(NOT_ROOT)
    if _missing():
        pytest.fail(f"real nodes cannot run here; missing: {'; '.join(_missing())}", pytrace=False)


@functools.cache
def _missing() -> tuple[str, ...]:
    return tuple(railwright_testbed.missing_for_real_nodes())
