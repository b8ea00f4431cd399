"""A process of Railwright as in production: its own service account, RBAC and Lease."""

from __future__ import annotations

import abc
import http.client
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from railwright_testbed import scraping
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.identity import Entrance
from railwright_testbed.ports import PortReservation
from railwright_testbed.processes import Process
from railwright_testbed.scraping import Reader

NAMESPACE = scraping.NAMESPACE
READY_DEADLINE_S = 60.0


def install(plane: ControlPlane, repository: Path) -> None:
    """Apply the CRDs and the manifests of docs/install.md, but for those of the processes."""
    # Another test may have installed the chart, which leaves the kinds.
    apply = ("apply", "--server-side", "--force-conflicts", "-f")
    plane.kubectl(*apply, str(repository / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    plane.kubectl("apply", "-k", str(repository / "deploy/rights"))


class ServiceProcess(abc.ABC):
    """One replica. ``host`` is the address at which pods or agents reach it. ``module`` is what
    Python runs. ``through`` is where it reaches the API server, when not at the server itself."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        name: str,
        service_account: str,
        module: str,
        host: str,
        through: Entrance | None = None,
    ) -> None:
        self._plane = plane
        self._name = name
        self._service_account = service_account
        self._module = module
        self._host = host
        self._through = through
        self._messages = PortReservation(host)
        self._probes = PortReservation("127.0.0.1")
        self._metrics = PortReservation(host)
        self._reader: Reader | None = None
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} {self._process!r}>"

    @property
    def address(self) -> str:
        """The host and the port of the server for messages."""
        return f"{self._host}:{self._messages.port}"

    @property
    def url(self) -> str:
        """Where pods or agents reach it."""
        return f"https://{self.address}"

    @property
    def pid(self) -> int:
        """The process of this replica, to be signalled by tests."""
        assert self._process is not None, "not started"
        return self._process.record.pid

    @property
    def alive(self) -> bool:
        """Whether this replica was started and has not ended."""
        return self._process is not None and self._process.alive

    @abc.abstractmethod
    def options(self) -> Mapping[str, str]:
        """Its environment, beside what all have."""

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        kubeconfig = self._plane.kubeconfig_for_service_account(
            NAMESPACE, self._service_account, through=self._through
        )
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "RAILWRIGHT_PROBE_ADDRESS": f"127.0.0.1:{self._probes.port}",
            "RAILWRIGHT_METRICS_ADDRESS": f"{self._host}:{self._metrics.port}",
            "RAILWRIGHT_NAMESPACE": NAMESPACE,
            "RAILWRIGHT_IDENTITY": self._name,
            **self.options(),
        }
        self._reader = None
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
    def metrics_port(self) -> int:
        """The port of its metrics."""
        return self._metrics.port

    def reader(self) -> Reader:
        """Of its metrics, as long as its authority stays."""
        if self._reader is None:
            self._reader = Reader.of(self._plane, self._service_account, host=self._host)
        return self._reader

    def scrape(self) -> str:
        """Its metrics."""
        status, text = self.reader().read(self._host, self._metrics.port)
        assert status == 200, f"{status} {text}"
        return text

    def series(self, name: str) -> dict[str, float]:
        """Its series whose names begin so, by their names and labels as they are printed."""
        text = self.scrape()
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    @property
    def log_file(self) -> Path:
        """All that it logged, of this run and those before it under the same name."""
        assert self._process is not None, "not started"
        return self._process.log

    def log(self) -> str:
        """The end of what it logged."""
        assert self._process is not None, "not started"
        return self._process.evidence()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._messages.release()
        self._probes.release()
        self._metrics.release()
