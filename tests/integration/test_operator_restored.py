"""etcd is restored from a backup while attempts run: what docs/restore.md says of each of them.

The site is one of its own, as the history of a store that was restored is not one history.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures import certificates, proxy
from fixtures.api_faults import Fault
from integration import operator_site
from integration.operator_site import ROOT, Floor, Job, Json, Site
from railwright_operator.wiring import AUTHORITY
from railwright_testbed import ControlPlane, ControlPlaneOptions, service_process, waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.kwok import PREFIX
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

REFUSED, MALFORMED = (401, 403), 400
ANSWER_S = 15.0
ENDED_S = 60.0
DEADLINE_S = 120.0
"""kwok and the controller manager look again at intervals that grow to a minute."""


@pytest.fixture
def restored_site() -> Iterator[Site]:
    """A running operator over simulated nodes whose history nobody checks."""
    options = ControlPlaneOptions(node_grace_s=operator_site.NODE_GRACE_S)
    with ControlPlane.start("restored", options=options) as plane, closing(plane.client()) as admin:
        service_process.install(plane, ROOT)
        with (
            plane.kwok() as kwok,
            proxy.beside(plane) as between,
            ControllersProcess(plane) as controllers,
            operator_site.replica(plane, "operator", through=between) as operator,
        ):
            yield Site(plane, kwok, operator, controllers, admin, between)


@dataclass(frozen=True, slots=True)
class Gangs:
    """A job for each row of the page, with what was seen of it before the restore."""

    stays: Job
    ends: Job
    waits: Job
    starts: Job
    moves: Job
    stayed: frozenset[str]
    forgotten: frozenset[str]
    saved: int


@pytest.mark.parametrize("runs", [False, True], ids=["operator_stopped", "operator_runs"])
def test_restored_etcd_keeps_promises(restored_site: Site, tmp_path: Path, runs: bool) -> None:
    """An operator that runs through the restore ends by itself, and its runner starts it again."""
    site, backup = restored_site, tmp_path / "etcd"
    with (
        operator_site.floor_on(site, (2,)) as kept,
        operator_site.floor_on(site, (2,)) as shared,
        operator_site.floor_on(site, (2,)) as caught,
        operator_site.floor_on(site, (2,)) as migrating,
        SimulatedLaunchers(site.plane, Played(1_000_000, checkpoint_interval_steps=4)),
    ):
        gangs = _backed_up(site, (kept, shared, caught, migrating), backup)
        late = kept.apply("late")
        if not runs:
            site.operator.stop()
        site.plane.restore(backup)
        site.admin.close()  # Its connection was to the API server before.
        if runs:
            _until_ended(site)
        _demand_backup(site, gangs)
        assert not late.object()
        _finish(site, gangs.ends)
        site.operator.stop()
        site.operator.start()
        _demand_promises(site, gangs)


def _backed_up(site: Site, floors: tuple[Floor, Floor, Floor, Floor], backup: Path) -> Gangs:
    """Gangs of which after the backup one runs on, one ends, one waited, one was half bound, and
    one loses a pod."""
    kept, shared, caught, migrating = floors
    stays, ends, moves = kept.apply("stays"), shared.apply("ends"), migrating.apply("moves")
    for job in (stays, moves):
        job.until(lambda status: bool(status.get("checkpoints")), "a checkpoint")
    ends.until_phase("Running")
    waits = shared.apply("waits")
    waits.until_reason("NotEnoughNodes")
    held = site.proxy.fail("create pods/binding", Fault.REQUEST_HELD, first=2, times=None)
    starts = caught.apply("starts")
    waiting.until(lambda: held.met > 0 and len(starts.bound()) == 1, "half bound", deadline_s=30)
    site.plane.back_up(backup)

    held.lift()
    starts.until_phase("Running")
    stayed, saved = _uids(stays), _step(stays)
    site.plane.kubectl("-n", moves.namespace, "delete", "pod", "moves-worker-0-1", "--wait=false")
    moves.until(lambda status: _runs(status, attempt=2), "attempt 2")
    _finish(site, ends)
    ends.until_phase("Succeeded")
    waits.until_phase("Running")
    _until_saved(stays, after=saved)
    return Gangs(stays, ends, waits, starts, moves, stayed, _uids(waits), saved)


def _until_ended(site: Site) -> None:
    """Wait until the operator has ended, as it saw the store go back, or lost its Lease before on a
    machine that takes long to start an API server."""
    waiting.until(
        lambda: not site.operator.alive,
        "the operator ended",
        deadline_s=ENDED_S,
        evidence=site.operator.log,
    )
    log = site.operator.log_file.read_text(encoding="utf-8")
    assert any(why in log for why in ("StoreWentBackError", "DeposedError", "lease lost"))


def _demand_backup(site: Site, gangs: Gangs) -> None:
    """Nothing was written since the restore by whoever knew what it undid."""
    assert gangs.ends.status()["phase"] == "Running"
    assert _runs(gangs.moves.status(), attempt=1)
    assert not gangs.waits.pods()
    entries = site.ledger()["spec"]["entries"]
    assert [(entry["jobName"], entry["state"]) for entry in entries] == [("starts", "Committing")]
    assert len(gangs.starts.bound()) == 1


def _demand_promises(site: Site, gangs: Gangs) -> None:
    """What the page says of each, once an operator leads that began after the restore."""
    gangs.ends.until_phase("Succeeded", deadline_s=DEADLINE_S)
    gangs.waits.until_phase("Running", deadline_s=DEADLINE_S)
    assert gangs.waits.status()["attempt"] == 1
    assert not gangs.forgotten & _uids(gangs.waits)
    gangs.starts.until_phase("Running", deadline_s=DEADLINE_S)
    assert len(gangs.starts.bound(gangs.starts.status()["attempt"])) == 2
    waiting.until(
        lambda: not site.ledger()["spec"].get("entries"), "nothing in flight", deadline_s=30
    )
    _until_saved(gangs.moves, after=_step(gangs.moves))
    assert _runs(gangs.moves.status(), attempt=1)
    _until_saved(gangs.stays, after=gangs.saved)
    status = gangs.stays.status()
    assert (status["phase"], status["attempt"], status["restarts"]) == ("Running", 1, 0)
    assert _uids(gangs.stays) == gangs.stayed
    assert {_answer(site, uid) for uid in gangs.stayed} == {MALFORMED}
    assert all(_answer(site, uid) in REFUSED for uid in gangs.forgotten)


def _until_saved(job: Job, *, after: int) -> None:
    job.until(lambda _: _step(job) > after, f"a step after {after}", deadline_s=DEADLINE_S)


def _runs(status: Json, *, attempt: int) -> bool:
    return (status["phase"], status["attempt"]) == ("Running", attempt)


def _uids(job: Job) -> frozenset[str]:
    return frozenset(pod["metadata"]["uid"] for pod in job.pods())


def _step(job: Job) -> int:
    return max(int(found["step"]) for found in job.status()["checkpoints"])


def _finish(site: Site, job: Job) -> None:
    """The containers of its pods end with 0, and their kubelet reports it.

    A simulated kubelet knows no more than the API does: after the restore it is told again.
    """
    for pod in job.pods():
        path = f"/api/v1/namespaces/{job.namespace}/pods/{pod['metadata']['name']}"
        annotations = {f"{PREFIX}/run-for": "0s"}
        site.admin.patch(path, {"metadata": {"annotations": annotations}})
    waiting.until(
        lambda: all(pod["status"]["phase"] == "Succeeded" for pod in job.pods()),
        "its pods succeeded",
        deadline_s=DEADLINE_S,
    )


def _answer(site: Site, uid: str) -> int:
    """The status of an answer to this pod's token, with a body that no heartbeat has."""
    token = (site.plane.directory / "simulated-launchers" / uid).read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    address, tls = site.operator.address, certificates.client_of(site.admin, AUTHORITY)
    with closing(http.client.HTTPSConnection(address, timeout=ANSWER_S, context=tls)) as connection:
        connection.request("POST", "/v1/beat", "{}", headers)
        return connection.getresponse().status
