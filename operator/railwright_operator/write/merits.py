"""What the order of ranks is good for, as ledger and Placement say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_api.placement import MACHINES_MAX
from railwright_scheduler.merits import Crossing, Merits, Predicted

_MICRO = 1_000_000
_SECONDS = (
    "stepSeconds",
    "networkOrderSeconds",
    "nextBestSeconds",
    "otherJobsSeconds",
    "slowNodesSeconds",
)
_OVER_BUDGET = "WorkBudgetExceeded"
_MEASURED, _DERIVED = "measured", "derived"


def render(merits: Merits) -> dict[str, Any]:
    """The fields of an object."""
    fields: dict[str, Any] = {
        "communication": _MEASURED if merits.measured else _DERIVED,
        "moved": merits.moved,
        "crossing": [
            {"level": each.level, "bytes": each.placed, "networkOrderBytes": each.network_order}
            for each in merits.crossing
        ],
    }
    if merits.other_devices:
        fields["otherDevices"] = list(merits.other_devices[:MACHINES_MAX])
    if merits.over_budget:
        fields["truncated"] = _OVER_BUDGET
    if (predicted := merits.predicted) is not None:
        fields["predicted"] = {
            "machines": list(predicted.machines),
            "stepSeconds": predicted.placed_us / _MICRO,
            "networkOrderSeconds": predicted.network_order_us / _MICRO,
            "nextBestSeconds": predicted.next_best_us / _MICRO,
            "otherJobsSeconds": predicted.others_us / _MICRO,
            "slowNodesSeconds": predicted.slow_us / _MICRO,
        }
    return fields


def parse(found: Mapping[str, Any]) -> Merits:
    """The same as a value; a prediction that another version cut differently is left out."""
    crossing = tuple(
        Crossing(each["level"], each["bytes"], each["networkOrderBytes"])
        for each in found.get("crossing", ())
    )
    told = found.get("predicted") or {}
    predicted = None
    if {"machines", *_SECONDS} <= told.keys():
        predicted = Predicted(
            tuple(told["machines"]),
            *(round(told[field] * _MICRO) for field in _SECONDS),
        )
    measured = found.get("communication") == _MEASURED
    others = tuple(found.get("otherDevices", ()))
    is_truncated = found.get("truncated") is not None
    return Merits(crossing, predicted, found.get("moved", 0), measured, others, is_truncated)
