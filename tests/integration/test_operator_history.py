"""A real job's life as etcd has it: the checker finds no violation, and it is all there."""

from __future__ import annotations

import collections
import itertools
from typing import Any

from history import notes, recorded
from history.writes import writes
from integration import operator_site
from integration.operator_site import NODE_LOST_S, Floor, Json, Site
from railwright_api import names
from railwright_testbed import audit, history, waiting
from railwright_testbed.history import REGISTRY, Revision
from railwright_testbed.kwok import PREFIX

SUCCEEDS = {f"{PREFIX}/run-for": "0.1s"}


def test_the_history_holds_a_jobs_whole_life_and_is_sound(site: Site) -> None:
    with operator_site.floor_on(site, (2, 1)) as floor:
        uid = _live_through_it(site, floor)
        _rewrite_a_condition(site, floor)
        floor.until_nothing_is_left()
        revisions = list(history.revisions(site.plane.etcd))
        found = recorded.check_history(site.plane).violations
    assert not found, "\n".join(map(str, found))
    jobs = _versions(revisions, f"railwright.dev/trainingjobs/{floor.name}/job")
    phases = _told_apart([job.get("status", {}).get("phase") for job in jobs])
    assert phases[-1] == "Succeeded"
    assert "Starting" in phases
    ledgers = _versions(revisions, f"railwright.dev/ledgers/{names.SINGLETON}")
    states = [
        (entry["attempt"], entry["state"])
        for ledger in ledgers
        for entry in ledger["spec"]["entries"]
        if entry["jobUID"] == uid
    ]
    assert _told_apart(states)[:3] == [(1, "Committing"), (1, "Aborting"), (2, "Committing")]
    numbers = [revision.number for revision in revisions]
    assert numbers == sorted(set(numbers))
    bound = collections.Counter(
        pod["metadata"]["labels"][names.LABEL_ATTEMPT]
        for rank in (0, 1)
        for attempt in (1, 2)
        for pod in _versions(revisions, f"pods/{floor.name}/job-worker-{rank}-{attempt}")[-1:]
        if pod["spec"].get("nodeName")
    )
    assert bound == {"1": 2, "2": 2}


def test_audit_log_shows_the_deletes_of_the_operator(site: Site, floor: Floor) -> None:
    job = floor.apply("job")
    job.until_bound()
    waiting.until(lambda: not floor.in_flight(), "the end of the commit", deadline_s=20)
    site.plane.kubectl("-n", floor.name, "delete", "pod", "job-worker-0-1", "--wait=false")
    job.until_bound(2)
    prefix = f"{REGISTRY}pods/{floor.name}/"
    deletes = writes(audit.requests(site.plane.audit_log)).deletes
    assert {key for key, _ in deletes if key.startswith(prefix)} == {f"{prefix}job-worker-1-1"}
    (made,) = [number for key, number in deletes if key == f"{prefix}job-worker-1-1"]
    changed = {
        change.key: change.value
        for revision in history.revisions(site.plane.etcd)
        if revision.number == made
        for change in revision.changes
    }
    pod = changed[f"{prefix}job-worker-1-1"]
    assert pod is not None
    assert "deletionTimestamp" in pod["metadata"]


def _rewrite_a_condition(site: Site, floor: Floor) -> None:
    """Nothing that a test declares is held against the operator."""
    job = floor.apply("declared", suspend=True)
    job.until_phase("Suspended")
    conditions = job.status()["conditions"]
    conditions[0]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    with notes.outside_guarantees(site.plane, "I20", because="an admin rewrites a time"):
        path = f"{floor.path(names.TRAINING_JOBS)}/declared/status"
        site.forge(lambda: site.admin.patch(path, {"status": {"conditions": conditions}}))
    floor.clear()


def _live_through_it(site: Site, floor: Floor) -> str:
    """Commit, the loss of a node, recovery, success, deletion; the UID of the job."""
    job = floor.apply("job")
    lost = job.until_nodes()[0]
    site.kwok.set_ready(lost, False)
    job.until_bound(2, deadline_s=NODE_LOST_S)
    site.kwok.set_ready(lost, True)
    for rank in (0, 1):
        path = f"/api/v1/namespaces/{floor.name}/pods/job-worker-{rank}-2"
        site.admin.patch(path, {"metadata": {"annotations": SUCCEEDS}})
    job.until_phase("Succeeded")
    uid = str(job.object()["metadata"]["uid"])
    job.delete()
    return uid


def _versions(revisions: list[Revision], key: str) -> list[Json]:
    """What was stored under a key, one version after the other."""
    return [
        change.value
        for revision in revisions
        for change in revision.changes
        if change.key == f"{REGISTRY}{key}" and change.value is not None
    ]


def _told_apart(values: list[Any]) -> list[Any]:
    """Each value once for every time that it came anew."""
    return [value for value, _ in itertools.groupby(values)]
