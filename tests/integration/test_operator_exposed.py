"""What the operator's ports expose, and user data in its output."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fixtures import certificates
from integration.node_agents import NodeAgents
from integration.operator_site import Floor, Json, Site
from railwright_api import names
from railwright_controllers.agents import server
from railwright_controllers.wiring import AUTHORITY as CONTROLLERS
from railwright_operator.wiring import AUTHORITY
from railwright_testbed import waiting
from railwright_testbed.kwok import PREFIX
from railwright_testbed.service_process import ServiceProcess
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

CANARY = "canary-5f1d0c2e9b"
LISTENS = "0A"
PATHS = (
    "/",
    "/metrics",
    "/healthz",
    "/readyz",
    "/debug/pprof/",
    "/debug/vars",
    "/snapshot",
    "/jobs",
    "/api/v1/pods",
    "/v1/register",
    "/v1/beat",
    "/v1/commit",
    "/v1/hardware",
    "/../../etc/passwd",
)
PROBES = ("/healthz", "/readyz")
BEAT = {"member": {"job_uid": "u", "attempt": 1, "node_rank": 0}, "sequence": 1}


def _listening(pid: int) -> dict[int, str]:
    """The address in hexadecimal of every TCP port that a process listens on, from the kernel."""
    sockets, found = set(), {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It may be closed meanwhile.
            sockets.add(os.readlink(fd))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets:
                found[int(port, 16)] = address
    return found


def _ask(
    port: int,
    method: str,
    path: str,
    body: str = "",
    *,
    tls: ssl.SSLContext | None = None,
    token: str = "",
) -> tuple[int, str]:
    host = "127.0.0.1"
    connection = (
        http.client.HTTPSConnection(host, port, timeout=30, context=tls)
        if tls
        else http.client.HTTPConnection(host, port, timeout=30)
    )
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body=body.encode(), headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("name", "authority"), [("operator", AUTHORITY), ("controllers", CONTROLLERS)]
)
def test_no_port_exposes_user_data_without_a_token(
    site: Site, floor: Floor, name: str, authority: str
) -> None:
    """Each path of each port, by each method: 200 on the probes alone, 401 on metrics."""
    job = floor.apply("told")
    job.until_bound()
    process: ServiceProcess = getattr(site, name)
    ports, messages = _listening(process.pid), urlsplit(process.url).port
    assert len(ports) == 3
    assert {messages, process.metrics_port} < ports.keys()
    encrypted = certificates.client_of(site.admin, authority)
    of_users = (job.object()["metadata"]["uid"], site.plane.token, floor.name, "told", *floor.nodes)
    for port in ports:
        is_encrypted = port in (messages, process.metrics_port)
        for path in PATHS:
            for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
                tls = encrypted if is_encrypted else None
                status, text = _ask(port, method, path, json.dumps(BEAT), tls=tls)
                asked = (port, method, path, status)
                if port == process.metrics_port:
                    assert status == 401, asked
                is_probe = not is_encrypted and method == "GET" and path in PROBES
                assert (status == 200) is is_probe, asked
                assert not [word for word in of_users if word in text], asked


def test_operator_takes_nothing_of_a_node_agent(site: Site, floor: Floor, tmp_path: Path) -> None:
    """With its token the controllers answer the same messages."""
    messages = {
        server.PATH: hardware_documents.written(Document()),
        server.UTILIZATION_PATH: '{"gpus": [1]}',
        server.POLL_PATH: "{}",
    }
    statuses = {}
    with contextlib.ExitStack() as ends:
        agents = NodeAgents(site, tmp_path)
        ends.callback(agents.clear)
        token = agents.token(floor.nodes[0])
        for process, authority in ((site.operator, AUTHORITY), (site.controllers, CONTROLLERS)):
            port = urlsplit(process.url).port
            assert port is not None
            tls = certificates.client_of(site.admin, authority)
            statuses[authority] = [
                _ask(port, "POST", path, body, tls=tls, token=token)[0]
                for path, body in messages.items()
            ]
    assert statuses == {AUTHORITY: [404] * 3, CONTROLLERS: [200] * 3}


def test_foreign_pod_with_a_jobs_uid_is_refused(site: Site, floor: Floor) -> None:
    job = floor.apply("told")
    job.until_bound()
    port = urlsplit(site.operator.url).port
    assert port is not None
    member = {"job_uid": job.object()["metadata"]["uid"], "attempt": 1, "node_rank": 0}
    heartbeat = {"member": member, "sequence": 1, "running": 1, "exited": 0}
    encrypted = certificates.client_of(site.admin, AUTHORITY)
    assert _ask(port, "POST", "/v1/beat", json.dumps(heartbeat), tls=encrypted)[0] == 403


@pytest.fixture
def secretive(floor: Floor) -> Floor:
    """A floor on which jobs with a secret among their words went through all that can happen."""
    env = [{"name": "API_KEY", "value": CANARY}]
    main: Json = {"name": "train", "image": "i", "command": ["python3", CANARY]}
    main |= {"env": env, "args": [CANARY]}
    odd: list[Json] = [
        {},
        {"hostAliases": [{"ip": "nowhere"}]},
        {"securityContext": "none"},
        {"dnsConfig": {"options": "none"}},
    ]
    stated = {"example.com/key": CANARY, f"{PREFIX}/run-for": "0.1s", f"{PREFIX}/exit-code": "3"}
    for number, more in enumerate(odd):
        template = {"spec": {"containers": [main]} | more}
        job = floor.apply(
            f"job-{number}",
            nodes=1,
            failurePolicy={"backoffLimit": 0},
            annotations=stated,
            template=template,
        )
        expected = "Failed" if not number else "Queued"
        job.until(partial(_ended, expected), expected)
    return floor


def _ended(phase: str, status: Json) -> bool:
    return "lastTermination" in status and status["phase"] == phase


def test_user_content_is_in_no_log_event_or_status(site: Site, secretive: Floor) -> None:
    """A secret in a template does not appear in logs, events or statuses."""
    admin = site.admin
    jobs = admin.get(secretive.path(names.TRAINING_JOBS))["items"]
    reported = {
        "statuses": [job["status"] for job in jobs],
        "placements": admin.get(secretive.path(names.PLACEMENTS)),
        "events": admin.get(f"/apis/events.k8s.io/v1/namespaces/{secretive.name}/events"),
        "ledger": site.ledger(),
        "metrics": site.operator.scrape(),
        "log": site.operator.log_file.read_text(encoding="utf-8"),
    }
    assert len(jobs) == 4
    assert "CommitRefused" in json.dumps(reported["statuses"])
    assert secretive.name in json.dumps(reported["events"])
    leaks = {place: json.dumps(found) for place, found in reported.items()}
    for place, text in leaks.items():
        at = text.find(CANARY)
        assert at < 0, f"{place}: …{text[max(0, at - 600) : at + 100]}"


def test_operator_logs_one_json_object_per_line(site: Site) -> None:
    text = site.operator.log_file.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines
    assert text.isascii()
    assert all(line.isprintable() for line in lines)
    assert all({"time", "level", "message"} <= json.loads(line).keys() for line in lines)


def test_operator_changes_no_foreign_objects(site: Site, floor: Floor) -> None:
    """No finalizer, and no copy of the object in an annotation."""
    values = [{"name": f"V{number}", "value": "x" * 30_000} for number in range(8)]
    main = {"name": "train", "image": "i", "command": ["c"], "env": values}
    job = floor.apply("large", nodes=1, template={"spec": {"containers": [main]}})
    job.until_bound()
    metadata = job.object()["metadata"]
    assert "finalizers" not in metadata
    assert "annotations" not in metadata
    job.delete()
    waiting.until(lambda: not job.object(), "it is gone at once", deadline_s=10)
