"""The options of the operator, read from its environment.

Everything else is a constant in the module that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from railwright_process import environment as options


@dataclass(frozen=True, slots=True)
class Settings:
    """``launcher_image`` carries the ``railwright`` package; an init container copies it into pods.

    ``heartbeat_url`` is where launchers send heartbeats: a Service in front of the operator, or its
    own address. With an https URL the operator decrypts them itself. ``heartbeat_address`` and
    ``probe_address`` are (host, port) to listen on.
    ``namespace`` holds the Lease, and ``identity`` is its holder: unique to a replica, such as the
    name of its pod. A leader that restarts with the same identity need not wait until its own
    Lease expires. By default every start has a new identity. ``reached_at``
    is the host:port at which launchers reach this replica; empty if it is not known.
    """

    launcher_image: str
    heartbeat_url: str
    heartbeat_address: tuple[str, int]
    probe_address: tuple[str, int]
    namespace: str
    identity: str
    reached_at: str = ""


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings. Raises SettingsError with the variable that is missing or invalid."""
    heartbeat_address = options.address(
        environment, "RAILWRIGHT_HEARTBEAT_ADDRESS", options.everywhere(environment, 8470)
    )
    return Settings(
        launcher_image=options.required(
            environment, "RAILWRIGHT_LAUNCHER_IMAGE", "an image with the railwright package"
        ),
        heartbeat_url=options.url(
            environment, "RAILWRIGHT_HEARTBEAT_URL", "where pods reach the operator"
        ),
        heartbeat_address=heartbeat_address,
        probe_address=options.address(
            environment, "RAILWRIGHT_PROBE_ADDRESS", options.of_probes(environment, 8471)
        ),
        namespace=options.namespace(environment),
        identity=options.identity(environment),
        reached_at=options.reached_at(environment, heartbeat_address),
    )
