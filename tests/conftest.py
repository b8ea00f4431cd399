"""What holds for all tests: those with real nodes need root, and are never left out in silence."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

import railwright_testbed
from fixtures.examples import examples

# Programs in Go, such as API servers and kubectl, collect garbage less often then: memory is there,
# and tests wait for processors.
os.environ.setdefault("GOGC", "400")

E2E = Path(__file__).parent / "e2e"
# How fast inputs are made and tests run says how busy the machine is, and nothing of the product.
settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
)
settings.load_profile("here")

NOT_ROOT = "NOT RUN: REAL NODES NEED ROOT (RUN THIS AS ROOT, OR IN CI)"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests are given out by file, side by side, each worker has a site of its own; but the
    five real nodes are too much to have twice."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _site
    return scheduler


def _site(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return "tests/e2e" if file.startswith("tests/e2e/") else file


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
