"""One job whose handling raises or hangs, before a real API server: others do not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from integration import operator_site
from integration.operator_site import Floor, Site
from railwright_testbed import waiting
from railwright_testbed.operator_process import OperatorProcess

PLANTED = "fixtures.planted_operator"
OTHERS_S = 5.0
"""How soon a job starts, whatever is wrong with others."""

CYCLE_S, TAKEOVER_S = 10.0, 20.0
"""The longest cycle, and how soon after it a standby leads."""


@pytest.fixture
def planted(site: Site) -> Iterator[Site]:
    """The site with a leader and a standby that have faults planted, in place of its operator."""
    with ExitStack() as stack:
        _until_leads(site, "operator")
        site.operator.stop()
        stack.callback(operator_site.start_again, site)
        site.admin.delete(operator_site.LEASE)
        leader = stack.enter_context(_replica(site, "planted"))
        other = replace(site, operator=leader)
        _until_leads(site, "planted")
        yield other


def _until_leads(site: Site, name: str) -> None:
    waiting.until(lambda: site.ledger()["spec"]["holder"] == name, f"{name} leads", deadline_s=40)


@contextmanager
def _replica(site: Site, name: str) -> Iterator[OperatorProcess]:
    with operator_site.replica(site.plane, name, through=site.proxy, module=PLANTED) as replica:
        yield replica


def test_job_that_raises_delays_no_other(planted: Site) -> None:
    """The next one starts within seconds, and the loss of another's pod is noticed."""
    with operator_site.floor_on(planted, (3, 3)) as floor:
        first = floor.apply("first")
        first.until_bound()
        raises = floor.apply("raises")
        raises.until_reason("InternalError")
        assert "PlantedError: planted for raises" in raises.status()["message"]
        other = floor.apply("other")
        other.until_bound(deadline_s=OTHERS_S)
        _delete_a_pod(floor, "first-worker-0-1")
        first.until_bound(attempt=2)
        assert raises.status()["reason"] == "InternalError"
        faults = planted.metrics('railwright_job_faults_total{stage="Decision"')
        assert sum(faults.values()) >= 1
        assert "job handling failed" in planted.operator.log_file.read_text()


def test_job_that_is_not_assessed_runs_on(planted: Site) -> None:
    with operator_site.floor_on(planted, (3, 3)) as floor:
        unassessed, other = floor.apply("unassessed"), floor.apply("other")
        unassessed.until_bound()
        other.until_bound()
        _delete_a_pod(floor, "other-worker-0-1")
        other.until_bound(attempt=2)
        assert unassessed.status()["attempt"] == 1
        assert unassessed.status()["phase"] == "Starting"


def test_hanging_cycle_ends_process_and_job_is_set_aside(planted: Site) -> None:
    with _replica(planted, "standby") as standby, operator_site.floor_on(planted, (3, 3)) as floor:
        epoch = planted.ledger()["spec"]["epoch"]
        hangs = floor.apply("hangs")
        applied_s = time.monotonic()
        waiting.until(
            lambda: not planted.operator.alive, "the leader ends", deadline_s=CYCLE_S + OTHERS_S
        )
        ended_s = time.monotonic()
        assert ended_s - applied_s > CYCLE_S - 1.0
        waiting.until(
            lambda: planted.ledger()["spec"]["epoch"] > epoch, "a new leader", deadline_s=TAKEOVER_S
        )
        later = replace(floor, site=replace(planted, operator=standby)).apply("later")
        later.until_bound()
        hangs.until_reason("InternalError")
        assert hangs.status()["schedulingBackoff"] == {
            "stage": "Decision",
            "generation": 1,
            "hangs": 1,
        }
        hangs.delete()
        floor.apply("last").until_bound(deadline_s=OTHERS_S)
        assert standby.alive


def _delete_a_pod(floor: Floor, name: str) -> None:
    floor.site.admin.delete(f"/api/v1/namespaces/{floor.name}/pods/{name}")
