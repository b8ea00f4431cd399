"""Two replicas: one writes, the other takes over whatever the first left half done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from integration import operator_site
from integration.operator_site import Floor, Job, Site
from railwright_testbed import waiting
from railwright_testbed.operator_process import OperatorProcess

GANG = 32
TAKEOVER_S = 20.0
WRITES = ("create", "replace", "patch", "delete")


def test_a_standby_finishes_or_undoes_what_a_killed_leader_had_begun(site: Site) -> None:
    with operator_site.floor_on(site, (16, 16)) as floor, _standby(site) as standby:
        before = site.ledger()["spec"]["epoch"]
        assert _writes(standby) == 0
        job = _caught_half_way(floor, site.operator.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        waiting.until(
            lambda: site.ledger()["spec"]["epoch"] == before + 1, "a new epoch", deadline_s=40
        )
        assert time.monotonic() - killed_s < TAKEOVER_S
        _settles(floor, job)


def test_a_leader_that_slept_over_its_lease_writes_nothing_more(site: Site) -> None:
    with operator_site.floor_on(site, (16, 16)) as floor, _standby(site) as standby:
        before = site.ledger()["spec"]["epoch"]
        slept = site.operator.pid
        job = _caught_half_way(floor, slept, signal.SIGSTOP)
        waiting.until(
            lambda: site.ledger()["spec"]["epoch"] == before + 1, "a new epoch", deadline_s=40
        )
        _settles(floor, job)
        job.until_reason("AtBarrier")
        waiting.until(lambda: _all_run(job), "nothing more to come of the pods", deadline_s=20)
        versions = _versions(site, job)
        os.kill(slept, signal.SIGCONT)
        waiting.until(
            lambda: site.operator.probe("/healthz")[0] == 0, "the end of it", deadline_s=20
        )
        assert _versions(site, job) == versions
        assert _writes(standby) > 0


@contextmanager
def _standby(site: Site) -> Iterator[OperatorProcess]:
    """A second replica; at the end the shared one, whatever became of it, leads again."""
    with operator_site.replica(site.plane, "standby") as standby:
        try:
            yield standby
        finally:
            epoch = site.ledger()["spec"]["epoch"]
            site.operator.stop()
            site.operator.start()
            os.kill(standby.pid, signal.SIGTERM)
            waiting.until(
                lambda: site.ledger()["spec"]["epoch"] > epoch, "the shared one", deadline_s=40
            )


def _caught_half_way(floor: Floor, leader: int, how: signal.Signals) -> Job:
    """A gang whose leader gets this signal once the first of its pods is there."""
    job = floor.apply("gang", nodes=GANG)
    waiting.until(job.pods, "a first pod", deadline_s=20, pause_s_longest=0.0)
    os.kill(leader, how)
    assert len(job.bound()) < GANG, "the commit was over before it could be disturbed"
    return job


def _settles(floor: Floor, job: Job) -> None:
    """All of it is bound in the end, and never part of it while the ledger holds nothing."""

    def settled() -> bool:
        if floor.in_flight():
            return False
        live = job.bound(job.status()["attempt"])
        assert len(live) in (0, GANG), f"{len(live)} bound, and nothing in flight"
        return len(live) == GANG

    waiting.until(settled, "the whole gang", deadline_s=40, evidence=job.story)
    assert sorted(job.bound(job.status()["attempt"]).values()) == floor.nodes
    assert len(job.pods()) == GANG


def _all_run(job: Job) -> bool:
    return all(pod["status"]["phase"] == "Running" for pod in job.pods())


def _versions(site: Site, job: Job) -> list[str]:
    objects = [site.ledger(), job.object(), *job.pods()]
    return sorted(each["metadata"]["resourceVersion"] for each in objects)


def _writes(operator: OperatorProcess) -> float:
    text = operator.probe("/metrics")[1]
    lines = (line for line in text.splitlines() if line.startswith("railwright_api_requests_total"))
    verbs = tuple(f'verb="{verb}"' for verb in WRITES)
    return sum(float(line.split()[-1]) for line in lines if any(verb in line for verb in verbs))
