"""The options of the controllers, read from their environment."""

from __future__ import annotations

from collections.abc import Mapping

from railwright_process.environment import ReplicaSettings


def from_environment(environment: Mapping[str, str]) -> ReplicaSettings:
    """Read the settings; ``url`` is where agents send reports, and ``namespace`` has the topology
    files and the agents too. Raises SettingsError with the variable that is invalid."""
    return ReplicaSettings.read(
        environment,
        url="RAILWRIGHT_AGENTS_URL",
        meaning="where agents reach them",
        address="RAILWRIGHT_AGENT_ADDRESS",
        port=8480,
    )
