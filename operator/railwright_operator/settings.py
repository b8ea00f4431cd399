"""The options of the operator, read from its environment.

Everything else is a constant in the module that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from railwright_process import environment as options
from railwright_process.environment import ReplicaSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ReplicaSettings):
    """``launcher_image`` carries the ``railwright`` package; an init container copies it into pods.
    ``url`` is where launchers send heartbeats."""

    launcher_image: str


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings. Raises SettingsError with the variable that is missing or invalid."""
    image, expected = "RAILWRIGHT_LAUNCHER_IMAGE", "an image with the railwright package"
    return Settings.read(
        environment,
        url="RAILWRIGHT_HEARTBEAT_URL",
        meaning="where pods reach the operator",
        address="RAILWRIGHT_HEARTBEAT_ADDRESS",
        port=8470,
        launcher_image=options.required(environment, image, expected),
    )
