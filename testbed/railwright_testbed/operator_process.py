"""The operator as in production."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.identity import Entrance
from railwright_testbed.service_process import ServiceProcess

SERVICE_ACCOUNT = "railwright-operator"


class OperatorProcess(ServiceProcess):
    """One replica. ``host`` is the address that launchers reach; ``launcher_image`` what pods pull.

    ``module`` is what Python runs, the operator itself or one with a fault planted.
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
        super().__init__(
            plane,
            name=name,
            service_account=SERVICE_ACCOUNT,
            module=module,
            host=host,
            through=through,
        )
        self._launcher_image = launcher_image

    def options(self) -> Mapping[str, str]:
        """Its environment, beside what all have."""
        return {
            "RAILWRIGHT_LAUNCHER_IMAGE": self._launcher_image,
            "RAILWRIGHT_HEARTBEAT_URL": self.url,
            "RAILWRIGHT_HEARTBEAT_ADDRESS": self.address,
        }

    def mapper_pids(self) -> list[int]:
        """The processes of its mapper that run."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        children = {int(pid) for each in threads for pid in _read(each / "children").split()}
        return sorted(
            pid for pid in children if b"railwright_mapper" in _read(Path(f"/proc/{pid}/cmdline"))
        )


def _read(path: Path) -> bytes:
    """A file of a process or a thread; empty if that is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
