"""The operator as in production: its own process, service account, RBAC and Lease."""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from types import TracebackType

from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.identity import Entrance
from railwright_testbed.ports import PortReservation
from railwright_testbed.processes import Process

NAMESPACE = "railwright-system"
SERVICE_ACCOUNT = "railwright-operator"
READY_DEADLINE_S = 60.0


def install(plane: ControlPlane, repository: Path) -> None:
    """Apply the CRDs and the operator's manifests, as described in the README."""
    plane.kubectl("apply", "--server-side", "-f", str(repository / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    plane.kubectl("apply", "-f", str(repository / "deploy"))


class OperatorProcess:
    """One replica. ``host`` is the address that pods reach; ``launcher_image`` what they pull.

    ``through`` is where it reaches the API server, when not at the server itself; ``module`` is
    what Python runs, the operator itself or one with a fault planted.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        name: str,
        host: str,
        launcher_image: str,
        through: Entrance | None = None,
        module: str = "railwright_operator",
    ) -> None:
        self._plane = plane
        self._module = module
        self._name = name
        self._host = host
        self._launcher_image = launcher_image
        self._through = through
        self._heartbeats = PortReservation(host)
        self._probes = PortReservation("127.0.0.1")
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"<OperatorProcess {self._name} {self._process!r}>"

    @property
    def url(self) -> str:
        """Where launchers reach it."""
        return f"http://{self._host}:{self._heartbeats.port}"

    @property
    def pid(self) -> int:
        """The process of this replica, to be signalled by tests."""
        assert self._process is not None, "not started"
        return self._process.record.pid

    def mapper_pids(self) -> list[int]:
        """The processes of its mapper that run."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        children = {int(pid) for each in threads for pid in (each / "children").read_text().split()}
        return sorted(pid for pid in children if b"railwright_mapper" in _command_line(pid))

    @property
    def alive(self) -> bool:
        """Whether this replica was started and has not ended."""
        return self._process is not None and self._process.alive

    def start(self) -> None:
        """Start the operator and wait until it is ready."""
        kubeconfig = self._plane.kubeconfig_for_service_account(
            NAMESPACE, SERVICE_ACCOUNT, through=self._through
        )
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "RAILWRIGHT_LAUNCHER_IMAGE": self._launcher_image,
            "RAILWRIGHT_HEARTBEAT_URL": self.url,
            "RAILWRIGHT_HEARTBEAT_ADDRESS": f"{self._host}:{self._heartbeats.port}",
            "RAILWRIGHT_PROBE_ADDRESS": f"127.0.0.1:{self._probes.port}",
            "RAILWRIGHT_NAMESPACE": NAMESPACE,
            "RAILWRIGHT_IDENTITY": self._name,
        }
        command = [sys.executable, "-m", self._module]
        self._process = self._plane.run(self._name, command, environment=environment)
        self._process.until(
            lambda: self.probe("/readyz")[0] == 200, "ready", deadline_s=READY_DEADLINE_S
        )

    def stop(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def release(self) -> None:
        """Leave it running when this Python process ends."""
        assert self._process is not None, "not started"
        self._process.release()
        self._heartbeats.release()
        self._probes.release()

    def probe(self, path: str) -> tuple[int, str]:
        """The status and text of one of its probe paths; 0 without a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self._probes.port, timeout=15)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    @property
    def log_file(self) -> Path:
        """All that it logged, of this run and those before it under the same name."""
        assert self._process is not None, "not started"
        return self._process.log

    def log(self) -> str:
        """The end of what it logged."""
        assert self._process is not None, "not started"
        return self._process.evidence()

    def __enter__(self) -> OperatorProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._heartbeats.release()
        self._probes.release()


def _command_line(pid: int) -> bytes:
    """That of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
