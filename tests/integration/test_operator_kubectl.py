"""What people and programs see of jobs through kubectl, probes and metrics; and what it costs."""

from __future__ import annotations

import time

from integration.operator_site import Floor, Site
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.kwok import PREFIX

IDLE_S = 15.0
WRITES = ("create", "replace", "patch", "delete")
SUCCEEDS = {f"{PREFIX}/run-for": "0.1s"}


def test_kubectl_get_shows_the_state_of_a_job(site: Site, floor: Floor) -> None:
    floor.apply("gang", nodes=3).until_bound()
    floor.apply("waits", nodes=4).until_reason("NotEnoughNodes")
    table = site.plane.kubectl("-n", floor.name, "get", "tj", "-o", "wide").splitlines()
    heads = table[0].split()
    assert heads[:4] == ["NAME", "PHASE", "QUEUE", "NODES"]
    rows = {row.split()[0]: row for row in table[1:]}
    assert rows["gang"].split()[:5] == ["gang", "Starting", "default", "3", "2"]
    restarts = table[0].index("RESTARTS")
    assert rows["gang"][restarts:].split()[0] == "0"
    assert rows["waits"].split()[1] == "Queued"
    assert "1/4 nodes available" in rows["waits"]


def test_wait_returns_when_the_gang_is_placed(site: Site, floor: Floor) -> None:
    floor.apply("gang")
    condition = "--for=condition=Scheduled"
    site.plane.kubectl("-n", floor.name, "wait", condition, "tj/gang", "--timeout=20s")


def test_kubectl_describe_shows_events_in_order(site: Site, floor: Floor) -> None:
    job = floor.apply("gang", failurePolicy={"backoffLimit": 0})
    job.until_bound()
    site.kwok.fail_pod(floor.name, "gang-worker-1-1", exit_code=3)
    job.until_phase("Failed")
    job.until_events("Scheduled", "RankFailed", "Failed")
    timeline = site.plane.kubectl("-n", floor.name, "describe", "tj", "gang")
    reported = timeline[timeline.index("Events:") :]
    words = (f"by node rank: {floor.nodes[0]}, {floor.nodes[1]}", "exited with 3", "Warning")
    missing = [word for word in words if word not in reported]
    assert not missing, reported


def test_probes_and_metrics_answer(site: Site) -> None:
    assert site.operator.probe("/healthz") == (200, "ok")
    assert site.operator.probe("/readyz") == (200, "ok")
    phases = site.metrics("railwright_jobs{")
    assert 'railwright_jobs{phase="Queued"}' in phases


def test_life_of_a_job_stays_within_operator_role(site: Site, floor: Floor) -> None:
    """The operator runs with its own role, and no request is forbidden."""
    before = _refused(site)
    job = floor.apply("job", failurePolicy={"backoffLimit": 1}, ttlSecondsAfterFinished=1)
    for attempt in (1, 2):
        job.until_bound(attempt)
        site.kwok.fail_pod(floor.name, f"job-worker-1-{attempt}", exit_code=3)
    waiting.until(lambda: not job.object(), "the job is gone", deadline_s=30)
    assert _refused(site) == before


def test_a_wait_whose_numbers_change_is_one_event(site: Site, floor: Floor) -> None:
    site.plane.kubectl("cordon", floor.nodes[0])
    site.until_nodes_heard()
    job = floor.apply("job", nodes=4)
    job.until_reason("NotEnoughNodes")
    for cordoned, node in enumerate(floor.nodes[1:], start=2):
        site.plane.kubectl("cordon", node)
        job.until_said(f"{cordoned} cordoned")
    job.patch({"suspend": True})
    job.until_events("NotEnoughNodes", "Suspended")


def test_an_operator_with_nothing_to_do_writes_nothing(site: Site, floor: Floor) -> None:
    jobs = [
        floor.apply("done", nodes=1, annotations=SUCCEEDS),
        floor.apply("held", nodes=4, suspend=True),
        floor.apply("never", gpus=9),
    ]
    jobs[0].until_phase("Succeeded")
    jobs.append(floor.apply("starting"))
    jobs[-1].until_bound()
    jobs.append(floor.apply("large", nodes=4))
    jobs[-1].until_reason("NotEnoughNodes")
    jobs[-1].until_older()
    jobs.append(floor.apply("small", nodes=1))
    jobs[-1].until_reason("BlockedByReservation")
    _until_quiet(site)
    before = _versions(site, floor)
    writes = _writes(site)
    events = [job.events() for job in jobs]
    end_s = time.monotonic() + IDLE_S
    while time.monotonic() < end_s:
        assert _writes(site) == writes
        time.sleep(0.5)
    assert _versions(site, floor) == before
    assert [job.events() for job in jobs] == events
    assert [len(reported) for reported in events] == [len(set(reported)) for reported in events]


def _refused(site: Site) -> float:
    return sum(site.metrics('railwright_api_requests_total{code="403"').values())


def _until_quiet(site: Site) -> None:
    """Wait for two equal counts a report of queues and fabric apart."""
    end_s = time.monotonic() + 30
    seen = -1.0
    while seen != (seen := _writes(site)):
        assert time.monotonic() < end_s, "it never came to rest"
        time.sleep(6)


def _writes(site: Site) -> float:
    verbs = tuple(f'verb="{verb}"' for verb in WRITES)
    requests = site.metrics("railwright_api_requests_total")
    return sum(count for labels, count in requests.items() if any(v in labels for v in verbs))


def _versions(site: Site, floor: Floor) -> dict[str, str]:
    group = f"/apis/{names.API_VERSION}"
    kinds = [floor.path(names.TRAINING_JOBS), floor.path(names.PLACEMENTS)]
    # Not the Fabric: the controllers write every minute that its topology is fresh.
    ours = (names.QUEUES, names.NODE_HEALTHS, names.LEDGERS)
    kinds += [f"{group}/{plural}" for plural in ours]
    return {
        f"{kind}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for kind in kinds
        for item in site.admin.get(kind)["items"]
    }
