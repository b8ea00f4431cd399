"""Convert the placement score between the core and the fields of ledger and Placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_api.placement import MACHINES_MAX
from railwright_scheduler.model.placement_score import (
    CrossDomainBytes,
    PlacementScore,
    PredictedStep,
)

_MICRO = 1_000_000
_SECONDS = (
    "stepSeconds",
    "networkOrderSeconds",
    "nextBestSeconds",
    "otherJobsSeconds",
    "slowNodesSeconds",
    "exposedCommunicationSeconds",
)
_MEASURED, _DERIVED = "Measured", "Derived"


def render(score: PlacementScore) -> dict[str, Any]:
    """Render a score as fields of an object."""
    fields: dict[str, Any] = {
        "communication": _MEASURED if score.measured else _DERIVED,
        "moved": score.moved,
        "crossing": [
            {"level": each.level, "bytes": each.placed, "networkOrderBytes": each.network_order}
            for each in score.crossing
        ],
    }
    if score.other_devices:
        fields["otherDevices"] = list(score.other_devices[:MACHINES_MAX])
    if score.truncated:
        fields["truncated"] = score.truncated
    if (predicted := score.predicted) is not None:
        fields["predicted"] = {"machines": list(predicted.machines)}
        fields["predicted"] |= {
            name: str(time_us / _MICRO)
            for name, time_us in zip(_SECONDS, predicted.times_us, strict=True)
        }
    return fields


def parse(found: Mapping[str, Any]) -> PlacementScore:
    """Read a score; a prediction in the format of another version is left out."""
    crossing = tuple(
        CrossDomainBytes(each["level"], each["bytes"], each["networkOrderBytes"])
        for each in found.get("crossing", ())
    )
    prediction = found.get("predicted") or {}
    predicted = None
    if {"machines", *_SECONDS} <= prediction.keys():
        times_us = (round(float(prediction[name]) * _MICRO) for name in _SECONDS)
        predicted = PredictedStep(tuple(prediction["machines"]), *times_us)
    measured = found.get("communication") == _MEASURED
    others = tuple(found.get("otherDevices", ()))
    truncated = found.get("truncated", "")
    return PlacementScore(crossing, predicted, found.get("moved", 0), measured, others, truncated)
