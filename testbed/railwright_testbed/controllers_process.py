"""The controllers as in production."""

from __future__ import annotations

from collections.abc import Mapping

from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.identity import Entrance
from railwright_testbed.service_process import ServiceProcess

SERVICE_ACCOUNT = "railwright-controllers"


class ControllersProcess(ServiceProcess):
    """One replica; agents reach it at ``host``."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        name: str = "controllers",
        host: str = "127.0.0.1",
        through: Entrance | None = None,
        module: str = "railwright_controllers",
    ) -> None:
        super().__init__(
            plane,
            name=name,
            service_account=SERVICE_ACCOUNT,
            module=module,
            host=host,
            through=through,
        )

    def options(self) -> Mapping[str, str]:
        """Its environment, beside what all have."""
        return {"RAILWRIGHT_AGENTS_URL": self.url, "RAILWRIGHT_AGENT_ADDRESS": self.address}
