"""Agents of simulated nodes: real processes with tokens of their own, on machines that are planted.

All are on this machine: what they see of it is a planted file system, and where they answer probes
is an address of the loopback interface.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from fixtures import machine_files, shell
from fixtures.machines import Machine
from railwright_agent.hardware import HardwareSources
from railwright_agent.reporting import ControllersClient
from railwright_api import names
from railwright_controllers.wiring import AGENT, AUTHORITY
from railwright_testbed.api_client import ApiClient
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.service_process import NAMESPACE
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


class AgentSite(Protocol):
    """Where agents report; ``admin`` is a connection of the cluster's administrator."""

    @property
    def plane(self) -> ControlPlane: ...
    @property
    def admin(self) -> ApiClient: ...
    @property
    def controllers(self) -> ControllersProcess: ...


class NodeAgents:
    """Those that a test starts, by node."""

    def __init__(self, site: AgentSite, folder: Path) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            site.plane.kubectl("-n", NAMESPACE, "create", "serviceaccount", AGENT)
        self._site = site
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens: dict[str, str] = {}
        self.authorities = folder / "ca.crt"
        stored = site.admin.get(f"{SECRETS}/{AUTHORITY}")["data"]["ca.crt"]
        self.authorities.write_bytes(base64.b64decode(stored))

    def start(self, node: str, machine: Machine, *, description: str = "", bind: str = "") -> None:
        root = self._folder / node
        if not root.exists():
            machine_files.write_sysfs(root, machine_files.sysfs(machine))
        (root / "token").write_text(self.token(node))
        command = [sys.executable, "-m", "railwright_agent", "report", f"--root={root}"]
        command += [f"--controllers={self._site.controllers.url}", f"--token-file={root / 'token'}"]
        command += [f"--authorities-file={self.authorities}"]
        if bind:
            command.append(f"--bind={bind}")
        if description:
            (root / "own.yaml").write_text(description)
            command.append(f"--description={root / 'own.yaml'}")
        # What this machine itself has is none of the simulated nodes'.
        self._running[node] = subprocess.Popen(command, env={"PATH": ""})

    def report_document(self, node: str, document: Document) -> None:
        """Send a report as the node's agent, with made-up values."""
        file = self._folder / f"{node}.token"
        file.write_text(self.token(node))
        sources = HardwareSources(self._folder)
        client = ControllersClient(self._site.controllers.url, file, sources, self.authorities)
        client.report(hardware_documents.written(document))

    def kill(self, node: str) -> None:
        agent = self._running.pop(node)
        agent.kill()
        agent.wait(20)

    def stop(self) -> None:
        for agent in self._running.values():
            agent.terminate()
        for agent in self._running.values():
            agent.wait(20)
        self._running.clear()

    def token(self, node: str) -> str:
        """Of a pod of the agents' account on this node, as the kubelet would mount it."""
        if node not in self._tokens:
            pod: dict[str, Any] = shell.pod(f"agent-{node}")
            pod["spec"] |= {"serviceAccountName": AGENT, "nodeName": node}
            made = self._site.admin.post(PODS, pod)["metadata"]
            bound = {"kind": "Pod", "apiVersion": "v1", "name": made["name"], "uid": made["uid"]}
            spec = {"audiences": [names.GROUP], "expirationSeconds": 3600, "boundObjectRef": bound}
            asked = self._site.admin.post(f"{ACCOUNTS}/{AGENT}/token", {"spec": spec})
            self._tokens[node] = str(asked["status"]["token"])
        return self._tokens[node]

    def clear(self) -> None:
        """End all, and delete their pods."""
        self.stop()
        pods = [f"agent-{node}" for node in self._tokens]
        self._site.plane.kubectl(
            "-n", NAMESPACE, "delete", "pods", "--ignore-not-found", "--now", *pods
        )


def listens(host: str, port: int) -> bool:
    """Whether an agent answers at this address."""
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False
