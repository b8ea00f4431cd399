"""A real API server with the kinds installed, one for the whole run; a namespace for each test."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration import operator_site
from integration.operator_site import HALL_NODES, Floor, Site
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient

ROOT = Path(__file__).resolve().parents[2]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd, API server and controller manager, with every kind Established."""
    with ControlPlane.start(name="it") as plane:
        plane.kubectl("apply", "-f", str(ROOT / "crds"))
        plane.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds")
        )
        waiting.until(lambda: _is_explained(plane), "the kinds in discovery", deadline_s=30)
        yield plane


@pytest.fixture
def admin(control_plane: ControlPlane) -> Iterator[ApiClient]:
    """A connection that may do anything; new for each test, as some restart the API server."""
    with contextlib.closing(control_plane.client()) as client:
        yield client


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """A namespace that no other test uses; it goes when the control plane goes."""
    name = f"test-{next(_numbers)}"
    control_plane.kubectl("create", "namespace", name)
    return name


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A running operator over simulated nodes, on a control plane of its own."""
    with operator_site.opened() as site:
        yield site


@pytest.fixture
def floor(site: Site) -> Iterator[Floor]:
    """Two racks of two nodes with 8 GPUs that no other test uses; its jobs go after the test."""
    with operator_site.floor_on(site) as floor:
        yield floor


@pytest.fixture(scope="session")
def hall(site: Site) -> Iterator[Floor]:
    """A floor of 64 nodes in 4 racks, for one large gang after the other."""
    with operator_site.floor_on(site, (HALL_NODES // 4,) * 4) as floor:
        yield floor


@pytest.fixture
def gang(hall: Floor) -> Iterator[str]:
    """The name of a job in the hall; after the test it is gone, and so is all it left.

    No two tests have one name: a simulated kubelet deletes by name, and may be late.
    """
    yield f"gang-{next(_numbers)}"
    hall.site.proxy.lift_all()
    hall.clear()


def _is_explained(plane: ControlPlane) -> bool:
    """Whether kubectl resolves the short names of our kinds: discovery lags by a moment."""
    try:
        plane.kubectl("explain", "tj.spec")
    except subprocess.CalledProcessError:
        return False
    return True
