"""The real cert-manager makes the authorities of the operator and the controllers.

The chart is installed on real nodes with the value that docs/security.md describes. A job trains
meanwhile: renewed certificates do not disturb it, and new keys, which its launchers do not trust,
end one attempt at most. Progress goes to stderr, one JSON object to stdout.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import bars, gang_site
from fixtures import training
from fixtures.training import REPORTS_STEPS, LiveJob, Training, script, step_of
from railwright_testbed import ControlPlane, Testbed, binaries, deployment, foreign_kinds, waiting
from railwright_testbed.service_process import NAMESPACE

PORTS, REPLICAS = {"operator": 8470, "controllers": 8480}, 3
REPORTED = "railwright_fabric_oldest_report_timestamp_seconds "
STEPS = 20
DEADLINE_S = 420.0
"""Agents report every three minutes, and a kubelet renews what they mount within two."""

BOUNDS = {
    "certificates_ready_seconds": 60,
    "renewal_attempts_ended": 0,
    "new_key_attempts_ended": 1,
    "secrets_changed_by_upgrade": 0,
    "processes_restarted": 0,
}

Secrets = dict[str, dict[str, bytes]]
"""The data of the Secret of each server."""


def main() -> int:
    (program,) = binaries.find(binaries.CERT_MANAGER).values()
    with tempfile.TemporaryDirectory() as folder, Testbed.start(name="issued") as bed:
        plane = bed.control_plane
        deployment.load(bed, Path(folder))
        foreign_kinds.install(plane, foreign_kinds.CERT_MANAGER)
        plane.run("cert-manager", [str(program)], environment={"KUBECONFIG": str(plane.kubeconfig)})
        return bars.publish(_figures(plane, bed.image), at_most=BOUNDS)


def _figures(plane: ControlPlane, image: str) -> dict[str, Any]:
    gang_site.log_progress("install")
    deployment.install(plane, "certManager.enabled=true")
    figures: dict[str, Any] = {"certificates_ready_seconds": _issued_s(plane)}
    pods = _restarts(plane)
    _until_served(plane, frozenset())
    job = _trains(plane, "before", image)
    gang_site.log_progress("renewal")
    figures["renewal_seconds"] = _renewed(plane)
    figures["renewal_attempts_ended"] = _attempts_ended(job)
    gang_site.log_progress("new keys")
    figures["new_key_seconds"] = _with_new_keys(plane)
    started_s = time.time()
    _trains(plane, "after", image)
    _until(lambda: _oldest_report_s(plane) > started_s, "a report of every agent")
    figures["agents_seconds"] = round(time.time() - started_s, 1)
    figures["new_key_attempts_ended"] = _attempts_ended(job)
    gang_site.log_progress("upgrade")
    secrets = _secrets(plane)
    deployment.upgrade(plane)
    figures["secrets_changed_by_upgrade"] = int(_secrets(plane) != secrets)
    figures["processes_restarted"] = len(_restarts(plane).items() - pods.items())
    return figures


def _issued_s(plane: ControlPlane) -> float:
    """After how many seconds the last of the certificates was ready."""
    ready = ("--for=condition=Ready", "certificate", "--all", "--timeout=60s")
    plane.kubectl("-n", NAMESPACE, "wait", *ready)
    found = _listed(plane, "certificates")
    assert len(found) == len(PORTS)
    return max(
        _unix_s(condition["lastTransitionTime"]) - _unix_s(each["metadata"]["creationTimestamp"])
        for each in found
        for condition in each["status"]["conditions"]
        if (condition["type"], condition["status"]) == ("Ready", "True")
    )


def _unix_s(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _renewed(plane: ControlPlane) -> float:
    """Renew both certificates, as ``cmctl renew`` does; return after how many seconds all replicas
    serve with new ones, which a client that trusts the old ones accepts."""
    old, served, started_s = _secrets(plane), _served(plane, _secrets(plane)), time.monotonic()
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}
    patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": issuing}])
    options = ("--subresource=status", "--type=json", "-p", patch)
    for server in PORTS:
        plane.kubectl("-n", NAMESPACE, "patch", "certificate", f"railwright-{server}", *options)
    _until(lambda: _are_new(_secrets(plane), old, "tls.crt"), "renewed certificates")
    _until_served(plane, served)
    assert len(_served(plane, old)) == REPLICAS
    return round(time.monotonic() - started_s, 1)


def _with_new_keys(plane: ControlPlane) -> float:
    """Delete both Secrets; return after how many seconds all replicas serve with new ones."""
    old, started_s = _secrets(plane), time.monotonic()
    for server in PORTS:
        plane.kubectl("-n", NAMESPACE, "delete", "secret", f"railwright-{server}-tls")
    _until(lambda: _are_new(_secrets(plane), old, "tls.key"), "new keys")
    _until_served(plane, frozenset())
    assert not _served(plane, old)
    return round(time.monotonic() - started_s, 1)


def _until_served(plane: ControlPlane, before: frozenset[bytes]) -> None:
    """Return once all replicas serve with other certificates, of the authorities in the Secrets."""
    _until(lambda: len(_served(plane, _secrets(plane)) - before) == REPLICAS, "its certificates")


def _served(plane: ControlPlane, secrets: Secrets) -> frozenset[bytes]:
    """The certificates of the replicas that a client of these authorities alone accepts."""
    found = set[bytes]()
    for server, port in PORTS.items():
        trusting = ssl.create_default_context(cadata=secrets[server]["ca.crt"].decode())
        for pod in _listed(plane, "pods", f"--selector=app=railwright-{server}"):
            host = f"railwright-{server}.{NAMESPACE}"
            with socket.create_connection((pod["status"]["podIP"], port), timeout=10) as plain:
                try:
                    with trusting.wrap_socket(plain, server_hostname=host) as session:
                        found.add(session.getpeercert(binary_form=True) or b"")
                except ssl.SSLCertVerificationError:
                    continue
    return frozenset(found)


def _secrets(plane: ControlPlane) -> Secrets:
    found = {each["metadata"]["name"]: each.get("data", {}) for each in _listed(plane, "secrets")}
    return {
        server: {
            name: base64.b64decode(value)
            for name, value in found.get(f"railwright-{server}-tls", {}).items()
        }
        for server in PORTS
    }


def _are_new(secrets: Secrets, old: Secrets, name: str) -> bool:
    """Whether both have another value of this name."""
    return all(secrets[each].get(name, old[each][name]) != old[each][name] for each in PORTS)


def _trains(plane: ControlPlane, name: str, image: str) -> LiveJob:
    job = training.apply(plane, "default", Training(name, script(REPORTS_STEPS), image))
    job.until(lambda status: step_of(status) > 0, "its first step")
    return job


def _attempts_ended(job: LiveJob) -> int:
    """Of a job that goes on training."""
    step = step_of(job.status())
    status = job.until(lambda found: step_of(found) > step + STEPS, f"{STEPS} more steps")
    return int(status["attempt"]) - 1


def _oldest_report_s(plane: ControlPlane) -> float:
    name = "railwright-controllers"
    (group,) = deployment.scrape_targets(plane, name)
    address, _, port = group["targets"][0].rpartition(":")
    status, text = deployment.metrics_reader(plane, name).read(address, int(port))
    lines = text.splitlines() if status == 200 else []
    return next((float(it.split()[1]) for it in lines if it.startswith(REPORTED)), 0.0)


def _restarts(plane: ControlPlane) -> dict[str, int]:
    """How often each pod of Railwright was restarted."""
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for pod in _listed(plane, "pods")
    }


def _listed(plane: ControlPlane, *selected: str) -> Any:
    return json.loads(plane.kubectl("-n", NAMESPACE, "get", *selected, "-o=json"))["items"]


def _until(holds: Callable[[], bool], what: str) -> None:
    waiting.until(holds, what, deadline_s=DEADLINE_S, pause_s_longest=1.0)


if __name__ == "__main__":
    sys.exit(main())
