"""Two replicas: one writes, the other takes over whatever the first left half done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from fixtures import proxy
from fixtures.api_faults import Fault, Rule
from fixtures.proxy import FaultProxy
from integration import failpoints, operator_site
from integration.failpoints import Failpoint
from integration.operator_site import Floor, Job, Json, Site
from railwright_testbed import waiting
from railwright_testbed.operator_process import OperatorProcess

GANG = 32
HALF = 8
TAKEOVER_S = 20.0
WRITES = ("create", "replace", "patch", "delete")


def test_standby_finishes_or_undoes_work_of_killed_leader(site: Site) -> None:
    """A gang in flight is bound completely or rolled back by the next leader."""
    with (
        operator_site.floor_on(site, (16, 16)) as floor,
        _standby(site, through=site.proxy) as standby,
    ):
        before = site.ledger()["spec"]["epoch"]
        assert _writes(standby) == 0
        assert [*standby.series("railwright_leader").values()] == [0]
        with failpoints.killed_at(
            site, site.operator, Failpoint("binding", GANG // 2, after=False)
        ):
            job = floor.apply("gang", nodes=GANG)
        killed_s = time.monotonic()
        waiting.until(
            lambda: site.ledger()["spec"]["epoch"] == before + 1, "a new epoch", deadline_s=40
        )
        assert time.monotonic() - killed_s < TAKEOVER_S
        assert [*standby.series("railwright_leader").values()] == [1]
        _settles(floor, job)


def test_late_bindings_of_leader_that_slept_are_refused(site: Site) -> None:
    """Half of each gang's bindings are on their way when it falls asleep, and arrive afterwards.

    One gang is left alone meanwhile, one is suspended, one is made again under its name.
    """
    with ExitStack() as stack:
        between = stack.enter_context(proxy.beside(site.plane))
        floors = [stack.enter_context(operator_site.floor_on(site, (8, 8))) for _ in range(3)]
        standby = stack.enter_context(_standby(site, through=between))
        before, slept = site.ledger()["spec"]["epoch"], site.operator.pid
        held, jobs = _asleep_half_way(site, floors)
        jobs[1].patch({"suspend": True})
        jobs[2].delete()
        waiting.until(lambda: not jobs[2].object(), "the old job is gone", deadline_s=20)
        floors[2].apply("gang", nodes=HALF * 2)
        waiting.until(
            lambda: site.ledger()["spec"]["epoch"] == before + 1, "a new epoch", deadline_s=40
        )
        _settles(floors[0], jobs[0], HALF * 2)
        jobs[1].until_phase("Suspended")
        _settles(floors[2], jobs[2], HALF * 2)
        waiting.until(
            lambda: not any(floor.in_flight() for floor in floors), "no entry", deadline_s=40
        )
        versions = _at_rest(site, jobs)
        for rule in held:
            rule.lift()
        late = [partial(_late, site, floor.name) for floor in floors]
        waiting.until(lambda: all(0 not in each() for each in late), "answers", deadline_s=20)
        assert all(len(each()) >= HALF for each in late)
        assert [set(each()) for each in late] == [{409}, {404}, {409}]
        sent = len(site.proxy.seen)
        os.kill(slept, signal.SIGCONT)
        waiting.until(
            lambda: site.operator.probe("/healthz")[0] == 0, "the end of it", deadline_s=20
        )
        leases = site.proxy.count("update leases", since=sent)
        assert site.proxy.count("write *", since=sent) == leases
        assert _versions(site, jobs) == versions
        waiting.until(lambda: _writes(standby) > 0, "it has written", deadline_s=20)


@contextmanager
def _standby(site: Site, *, through: FaultProxy) -> Iterator[OperatorProcess]:
    """A second replica; at the end the shared one, whatever became of it, leads again."""
    with operator_site.replica(site.plane, "standby", through=through) as standby:
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


def _asleep_half_way(site: Site, floors: Sequence[Floor]) -> tuple[list[Rule], list[Job]]:
    """Gangs with half of their bindings done and half of them sent, by a leader that sleeps."""
    held = [
        site.proxy.fail(
            "create pods/binding",
            Fault.REQUEST_HELD,
            first=HALF + 1,
            times=None,
            namespace=floor.name,
        )
        for floor in floors
    ]
    jobs = [floor.apply("gang", nodes=HALF * 2) for floor in floors]

    def is_half_way() -> bool:
        done = all(len(job.bound()) == HALF for job in jobs)
        return done and all(rule.met >= HALF for rule in held)

    waiting.until(is_half_way, "half of each", deadline_s=20, evidence=lambda: f"{held}")
    os.kill(site.operator.pid, signal.SIGSTOP)
    return held, jobs


def _late(site: Site, namespace: str) -> list[int]:
    """The answers to the bindings that were held."""
    return site.proxy.statuses("create pods/binding", namespace=namespace)[HALF:]


def _settles(floor: Floor, job: Job, size: int = GANG) -> None:
    """All of it is bound in the end, and never part of it while the ledger holds nothing."""

    def settled() -> bool:
        if floor.in_flight():
            return False
        live = job.bound(job.status()["attempt"])
        if floor.in_flight():
            return False
        assert len(live) in (0, size), f"{len(live)} bound, and nothing in flight"
        return len(live) == size

    waiting.until(settled, "the whole gang", deadline_s=40, evidence=job.timeline)
    assert sorted(job.bound(job.status()["attempt"]).values()) == floor.nodes
    assert len(job.pods()) == size


def _at_rest(site: Site, jobs: Sequence[Job]) -> list[str]:
    """The versions of all that there is, once nothing more comes."""
    for job in jobs:
        job.until(lambda status: status.get("reason") in ("AtBarrier", "Suspended"), "its rest")
    waiting.until(
        lambda: all(_is_settled(pod) for job in jobs for pod in job.pods()),
        "pods that run, and none that goes",
        deadline_s=40,
    )
    return _versions(site, jobs)


def _is_settled(pod: Json) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def _versions(site: Site, jobs: Sequence[Job]) -> list[str]:
    pods = [pod for job in jobs for pod in job.pods()]
    objects = [site.ledger(), *(job.object() for job in jobs), *pods]
    return sorted(each["metadata"]["resourceVersion"] for each in objects)


def _writes(operator: OperatorProcess) -> float:
    text = operator.scrape()
    lines = (line for line in text.splitlines() if line.startswith("railwright_api_requests_total"))
    verbs = tuple(f'verb="{verb}"' for verb in WRITES)
    return sum(float(line.split()[-1]) for line in lines if any(verb in line for verb in verbs))
