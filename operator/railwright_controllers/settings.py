"""The options of the controllers, read from their environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from railwright_process import environment as options


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """``agent_address`` and ``probe_address`` are (host, port) to listen on. ``namespace`` has the
    Lease, the topology files and the agents; ``identity`` is the holder of the Lease.
    ``agents_url`` is where agents send reports: a Service in front of the controllers, or their own
    address. ``reached_at`` is the host:port at which agents reach this replica; empty if it is not
    known."""

    agents_url: str
    agent_address: tuple[str, int]
    probe_address: tuple[str, int]
    namespace: str
    identity: str
    reached_at: str = ""


def from_environment(environment: Mapping[str, str]) -> ControllerSettings:
    """Read the settings. Raises SettingsError with the variable that is invalid."""
    agent_address = options.address(
        environment, "RAILWRIGHT_AGENT_ADDRESS", options.everywhere(environment, 8480)
    )
    return ControllerSettings(
        agents_url=options.url(environment, "RAILWRIGHT_AGENTS_URL", "where agents reach them"),
        agent_address=agent_address,
        probe_address=options.address(
            environment, "RAILWRIGHT_PROBE_ADDRESS", options.of_probes(environment, 8481)
        ),
        namespace=options.namespace(environment),
        identity=options.identity(environment),
        reached_at=options.reached_at(environment, agent_address),
    )
