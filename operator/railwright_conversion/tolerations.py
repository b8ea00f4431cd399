"""The tolerations of a pod, from its spec to the scheduler's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_scheduler.model.snapshot import Toleration


def convert(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    """The tolerations of a pod."""
    return tuple(
        Toleration(
            key=found.get("key", ""),
            operator=found.get("operator", "Equal"),
            value=found.get("value", ""),
            effect=found.get("effect", ""),
        )
        for found in spec.get("tolerations", ())
    )
