"""The operator dies between two writes of a gang of 64: then all of it is bound, or nothing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration import failpoints
from integration.failpoints import Failpoint, Pair, around
from integration.operator_site import HALL_NODES, Floor, Job, Site
from railwright_testbed import waiting

GANG = HALL_NODES
MIDDLE = GANG // 2
CLEAN_S = 30.0

ALL = "RAILWRIGHT_ALL_FAILPOINTS" in os.environ

COMMIT_ALL = (
    *around("ledger", 1, 2),
    *around("placement", 1),
    *around("pod", 1, MIDDLE, GANG),
    *around("binding", 1, MIDDLE, GANG),
    *around("status", 1),
)
# What follows after one write is what follows before the next one, so these leave out its twins.
COMMIT_SOME = (
    *("ledger:1.before", "ledger:1.after", "placement:1.after", "status:1.before"),
    *("pod:1.after", "pod:32.before", "pod:64.before", "pod:64.after"),
    *("binding:1.after", "binding:32.before", "binding:64.before", "binding:64.after"),
    *("ledger:2.before", "ledger:2.after"),
)
ROLL_BACK_ALL = (
    *around("ledger", 1, 2),
    *around("removal", 1, MIDDLE, GANG),
    *around("status", 1),
)
ROLL_BACK_SOME = ("ledger:1.after", "removal:32.before", "removal:64.after", "ledger:2.before")


def chosen(every: tuple[Failpoint, ...], some: tuple[str, ...]) -> list[Failpoint]:
    return [point for point in every if ALL or str(point) in some]


@pytest.fixture(scope="module")
def replicas(site: Site) -> Iterator[Pair]:
    """Two replicas for all tests here."""
    with failpoints.paired(site) as pair:
        yield pair


@pytest.fixture
def pair(hall: Floor, replicas: Pair, gang: str) -> Iterator[Pair]:
    """Both replicas alive; the one killed is started again while the hall is emptied."""
    with ThreadPoolExecutor(1) as beside:
        yield replicas
        refilled = beside.submit(replicas.refill)
        hall.clear()
        refilled.result()


def test_commit_makes_the_writes_named_by_failpoints(site: Site, hall: Floor, gang: str) -> None:
    """The order of writes equals the list of failpoints."""
    assert len(chosen(COMMIT_ALL, COMMIT_SOME)) >= len(COMMIT_SOME)
    before = len(site.proxy.seen)
    _settled(hall, hall.apply(gang, nodes=GANG), by_s=time.monotonic() + CLEAN_S)
    counts = {
        kind: site.proxy.count(selector, since=before)
        for kind, selector in failpoints.WRITES.items()
    }
    assert counts.pop("status") >= 1
    assert counts == {"ledger": 2, "placement": 1, "pod": GANG, "binding": GANG, "removal": 0}


@pytest.mark.parametrize("point", chosen(COMMIT_ALL, COMMIT_SOME), ids=str)
def test_a_commit_whose_operator_dies_at_a_write_ends_whole(
    site: Site, hall: Floor, pair: Pair, gang: str, point: Failpoint
) -> None:
    with failpoints.killed_at(site, pair.leader, point):
        job = hall.apply(gang, nodes=GANG)
    killed_s = time.monotonic()
    pair.take_over()
    _settled(hall, job, by_s=killed_s + CLEAN_S)


@pytest.mark.parametrize("point", chosen(ROLL_BACK_ALL, ROLL_BACK_SOME), ids=str)
def test_rollback_of_operator_killed_at_a_write_leaves_nothing(
    site: Site, hall: Floor, pair: Pair, gang: str, point: Failpoint
) -> None:
    """The operator is killed at each write of a roll-back; no pod and no reservation remains."""
    job = hall.apply(gang, nodes=GANG)
    _settled(hall, job, by_s=time.monotonic() + CLEAN_S)
    with failpoints.killed_at(site, pair.leader, point):
        job.patch({"suspend": True})
    killed_s = time.monotonic()
    pair.take_over()
    job.until_phase("Suspended")
    waiting.until(
        lambda: not job.pods() and not hall.in_flight(),
        "nothing left of the attempt",
        deadline_s=killed_s + CLEAN_S - time.monotonic(),
        evidence=job.timeline,
    )


def _settled(floor: Floor, job: Job, *, by_s: float) -> None:
    """All is bound in the end, once; and whenever the ledger is at rest, all of it or nothing."""

    def holds() -> bool:
        before = floor.site.ledger()
        pods = [pod for pod in job.pods() if "nodeName" in pod["spec"]]
        uses = Counter(pod["spec"]["nodeName"] for pod in pods)
        assert max(uses.values(), default=1) == 1, f"used twice: {uses}"
        if floor.in_flight() or floor.site.ledger() != before:
            return False
        assert len(pods) in (0, GANG), f"{len(pods)} bound, and nothing in flight"
        return len(pods) == GANG and len(job.pods()) == GANG

    waiting.until(
        holds, "the whole gang", deadline_s=by_s - time.monotonic(), evidence=job.timeline
    )
    assert len(job.bound(job.status()["attempt"])) == GANG
