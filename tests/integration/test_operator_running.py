"""Running gangs: messages of launchers against the state of nodes in the API."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from fixtures.api_faults import Elsewhere
from integration import operator_site
from integration.operator_site import Floor, Job, Site
from railwright_api import names
from railwright_scheduler.attempt.breaker import SETTLE_S
from railwright_scheduler.model.evidence import SILENT_S, UNREADY_S
from railwright_testbed import service_process, waiting
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

GPU = "nvidia.com/gpu"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OUTAGE_S = float(os.environ.get("RAILWRIGHT_OUTAGE_S", "30"))
KUBELET_VERDICT_S = 13.0 + 3 * 2.0
"""How long after suspicion a dead kubelet's Lease would have been called stale."""


@pytest.fixture(scope="module")
def launchers(site: Site) -> Iterator[SimulatedLaunchers]:
    """Somebody speaks for every pod that runs, until silenced by node; no training ends."""
    played = Played(steps=1_000_000, checkpoint_interval_steps=4)
    with SimulatedLaunchers(site.plane, played) as launchers:
        yield launchers


def test_suspended_running_job_frees_nodes_and_runs_again(
    launchers: SimulatedLaunchers, floor: Floor
) -> None:
    job = floor.apply("job", nodes=4)
    job.until_phase("Running")
    job.patch({"suspend": True})
    job.until_phase("Suspended")
    waiting.until(lambda: not job.bound() and not floor.in_flight(), "free", deadline_s=30)
    job.patch({"suspend": False})
    status = job.until_phase("Running")
    assert (status["attempt"], status["restarts"], status["failures"]) == (2, 0, 0)


def test_running_job_changed_while_operator_down_restarts(
    site: Site, launchers: SimulatedLaunchers, floor: Floor
) -> None:
    """The next leader finds another spec hash and starts a new attempt."""
    job, other = floor.apply("job", gpus=4), floor.apply("other", gpus=4)
    for each in (job, other):
        each.until_phase("Running")
    site.operator.stop()
    roles = job.object()["spec"]["roles"]
    roles[0]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: 8}}
    for change in ({"suspend": True}, {"roles": roles}, {"suspend": False}):
        job.patch(change)
    other.patch({"suspend": True})
    other.patch({"suspend": False, "failurePolicy": {"backoffLimit": 9}})
    operator_site.start_again(site)
    status = job.until(_runs(2), "attempt 2 running")
    assert (status["restarts"], status["failures"]) == (0, 0)
    assert "its spec was changed" in status["lastTermination"]["message"]
    asked = {
        pod["spec"]["containers"][0]["resources"]["limits"][GPU]
        for pod in job.pods()
        if pod["metadata"]["labels"][names.LABEL_ATTEMPT] == "2"
    }
    assert asked == {"8"}
    assert other.status()["attempt"] == 1


def test_a_running_job_that_is_deleted_leaves_nothing(
    launchers: SimulatedLaunchers, floor: Floor
) -> None:
    job = floor.apply("job", nodes=4)
    job.until_phase("Running")
    job.delete()
    floor.until_nothing_is_left()
    floor.apply("next", nodes=4).until_phase("Running")


def test_silently_dead_node_is_replaced_until_none_is_left(
    site: Site, launchers: SimulatedLaunchers
) -> None:
    """Each loss of a node moves the job to a spare one; without one it waits."""
    with operator_site.floor_on(site, (2, 1)) as floor:
        first, second, spare = floor.nodes
        job = floor.apply("job")
        step = job.until(lambda status: bool(status.get("checkpoints")), "a checkpoint")
        _die(site, launchers, first)
        status = job.until(_runs(2), "attempt 2 running", deadline_s=120)
        assert job.nodes() == [second, spare]
        assert status["lastTermination"]["lostNodes"] == [first]
        resume = site.admin.get(floor.path(names.PLACEMENTS) + "/job-2")["spec"]["resume"]
        assert resume[0]["attempt"] == 1
        assert resume[0]["step"] >= step["checkpoints"][0]["step"]
        _die(site, launchers, spare)
        assert "2 unready" in job.until_reason("NotEnoughNodes", deadline_s=120)["message"]
        assert job.status()["phase"] == "Queued"
        new = floor.add(f"{floor.name}-rack-0", 1)
        status = job.until(_runs(3), "attempt 3 running")
        assert sorted(job.nodes()) == sorted([second, *new])
        assert (status["restarts"], status["failures"]) == (2, 0)


def test_death_of_a_launcher_alone_ends_only_its_attempt(
    site: Site, launchers: SimulatedLaunchers
) -> None:
    """The kubelet reports the exit code. The node is well, and the next attempt has it again."""
    with operator_site.floor_on(site, (2,)) as floor:
        job = floor.apply("job")
        job.until_phase("Running")
        node, _ = nodes = job.nodes()
        launchers.silence(node)
        site.kwok.fail_pod(floor.name, "job-worker-0-1", exit_code=137)
        end = job.until(lambda status: "lastTermination" in status, "its end")["lastTermination"]
        assert (end["cause"], end["exitCode"], end["node"]) == ("RankFailed", 137, node)
        assert "lostNodes" not in end
        launchers.resume(node)
        status = job.until(_runs(2), "attempt 2 running", deadline_s=120)
        assert job.nodes() == nodes
        assert (status["restarts"], status["failures"]) == (1, 1)


def test_silence_of_one_source_never_makes_a_node_lost(
    site: Site, launchers: SimulatedLaunchers, floor: Floor
) -> None:
    job = floor.apply("job")
    job.until_phase("Running")
    mute, unready = job.nodes()
    launchers.silence(mute)
    site.kwok.set_ready(unready, False)
    status = job.until_reason("LauncherSilent")
    assert mute in status["message"]
    assert unready not in status["message"]
    end_s = time.monotonic() + KUBELET_VERDICT_S
    while time.monotonic() < end_s:
        status = job.status()
        assert (status["attempt"], status["phase"]) == (1, "Running"), status
        time.sleep(0.5)
    launchers.silence(unready)
    job.until_said(unready)
    assert job.status()["attempt"] == 1, "it was not Ready before its launcher fell silent"
    site.kwok.set_ready(unready, True)
    site.kwok.set_ready(unready, False)
    status = job.until(
        lambda status: "lastTermination" in status, "a verdict", deadline_s=UNREADY_S + 60
    )
    end = status["lastTermination"]
    assert (end["cause"], end["lostNodes"]) == ("NodeLost", [unready])
    assert "it is not Ready" in end["message"]


def test_a_restarted_api_server_costs_no_watch_its_news(
    site: Site, launchers: SimulatedLaunchers, floor: Floor
) -> None:
    job = floor.apply("job")
    job.until_phase("Running")
    large = floor.apply("large", nodes=4)
    large.until_reason("NotEnoughNodes")
    operator = site.operator.pid
    gone = _gone(site)
    with _lease_kept(site):
        site.plane.stop_api_server()
        site.plane.start_api_server()
    site.admin.close()
    large.delete()
    late = floor.apply("late")
    late.until_phase("Running", deadline_s=120)
    job.delete()
    waiting.until(lambda: not job.pods(), "its pods are gone", deadline_s=120)
    floor.apply("next").until_phase("Running", deadline_s=120)
    assert site.operator.pid == operator
    assert site.operator.probe("/healthz")[0] == 200
    assert _gone(site) > gone


def test_a_time_without_an_api_server_ends_no_attempt(
    site: Site, launchers: SimulatedLaunchers, floor: Floor
) -> None:
    """A leader that cannot renew ends itself; a Deployment's part is played here. The next leader
    finds nodes that are not Ready, as kubelets had nobody to report to."""
    launchers.silence(floor.nodes[2])
    running = floor.apply("running")
    running.until_phase("Running")
    starting = floor.apply("starting", nodes=1)
    starting.until_reason("AtBarrier")
    waits = floor.apply("waits", nodes=3)
    waits.until_reason("NotEnoughNodes")
    renewed = _renewals(site, floor)
    site.plane.stop_api_server()
    end_s = time.monotonic() + OUTAGE_S
    waiting.until(lambda: site.operator.probe("/healthz")[0] == 0, "its end", deadline_s=30)
    waiting.until(lambda: time.monotonic() > end_s, "the end of the outage", deadline_s=OUTAGE_S)
    site.plane.start_api_server()
    site.admin.close()
    # A kubelet renews within seconds; the simulated ones take up to a minute, and look dead.
    waiting.until(
        lambda: not renewed.items() & _renewals(site, floor).items(), "renewals", deadline_s=300
    )
    for node in floor.nodes:
        site.kwok.set_ready(node, False)
    site.operator.stop()
    site.operator.start()
    _stay(site, floor, {running: "Running", starting: "Starting"}, for_s=SETTLE_S)
    assert not {*floor.nodes} & site.kwok.ready_nodes()
    for node in floor.nodes:
        site.kwok.set_ready(node, True)
    site.until_nodes_heard()
    late = floor.apply("late", nodes=1)
    late.until_reason("BlockedByReservation")
    _stay(site, floor, {running: "Running", starting: "Starting"}, for_s=SILENT_S + 4)
    for job, phase in ((running, "Running"), (starting, "Starting"), (waits, "Queued")):
        status = job.status()
        assert (status["phase"], status["restarts"]) == (phase, 0), status
    assert running.status()["attempt"] == starting.status()["attempt"] == 1


@contextmanager
def _lease_kept(site: Site) -> Iterator[None]:
    """The leader renews at another API server: a restart can take longer than its Lease lasts."""
    with site.plane.second_api_server(etcd_port=site.plane.etcd_port) as second:
        elsewhere = Elsewhere(second.url, ssl.create_default_context(cafile=str(second.ca_file)))
        rule = site.proxy.fail(
            "* leases", elsewhere, times=None, namespace=service_process.NAMESPACE
        )
        try:
            waiting.until(lambda: rule.met, "a renewal", deadline_s=20)
            yield
        finally:
            rule.lift()


def _die(site: Site, launchers: SimulatedLaunchers, node: str) -> None:
    """Simulated kubelets go on to renew when they are not Ready: it is lost after ``UNREADY_S``."""
    launchers.silence(node)
    site.kwok.set_ready(node, False)


def _stay(site: Site, floor: Floor, phases: Mapping[Job, str], *, for_s: float) -> None:
    """The jobs stay in these phases, while kubelets renew: simulated ones do so too rarely after an
    outage."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        for node in floor.nodes:
            site.admin.patch(f"{LEASES}/{node}", {"spec": {"renewTime": now}})
        for job, phase in phases.items():
            assert job.status()["phase"] == phase, job.status()
        time.sleep(0.5)


def _renewals(site: Site, floor: Floor) -> dict[str, str]:
    """When each node's Lease was renewed last, as it says."""
    return {node: site.admin.get(f"{LEASES}/{node}")["spec"]["renewTime"] for node in floor.nodes}


def _runs(attempt: int) -> Callable[[operator_site.Json], bool]:
    return lambda status: status["attempt"] == attempt and status["phase"] == "Running"


def _gone(site: Site) -> float:
    """How often a watch was told that what it wants is compacted away."""
    errors = site.metrics("railwright_watch_errors_total")
    return sum(count for labels, count in errors.items() if 'cause="gone"' in labels)
