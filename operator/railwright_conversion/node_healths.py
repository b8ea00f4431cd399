"""Convert NodeHealth objects to values of the scheduler."""

from __future__ import annotations

from typing import Any

from railwright_api.node_health import NodeRails, NodeSpeed
from railwright_conversion import bounds, machines
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.relative_speed import EVEN, RelativeSpeed

Json = dict[str, Any]


def parse_device(raw: Any) -> str:
    """The product name of the node's devices; empty without one, and for one of a later version."""
    return raw if isinstance(raw, str) and machines.is_known(raw) else ""


def parse_rails(raw: Any) -> Rails | None:
    """The rails in an object. Raises ValueError."""
    if raw is None:
        return None
    found = NodeRails.model_validate(raw)
    if not found.order:
        return None
    return Rails(
        found.order,
        tuple(MiscabledRail(each.rail, each.adapter, each.reason) for each in found.miscabled),
    )


def render_rails(rails: Rails) -> Json:
    """The rails as an object has them."""
    return {
        "order": [*rails.order],
        "miscabled": [
            {"rail": each.rail, "adapter": each.adapter, "reason": each.why}
            for each in rails.miscabled
        ],
    }


def parse_speed(raw: Any, rails: Rails | None) -> RelativeSpeed:
    """The relative speed of a node with these rails. Raises ValueError."""
    found = None if raw is None else NodeSpeed.model_validate(raw)
    measured = EVEN if found is None else _relative_speed(found)
    if rails is None or not rails.miscabled:
        return measured
    return RelativeSpeed(measured.products, measured.memory, rails.share)


def _relative_speed(found: NodeSpeed) -> RelativeSpeed:
    """A device that does nothing counts as the slowest one: durations are divided by its speed."""
    slowest, _ = bounds.MAGNITUDES
    return RelativeSpeed(
        max(bounds.non_negative(found.products), slowest),
        max(bounds.non_negative(found.memory), slowest),
    )


def render_speed(speed: RelativeSpeed) -> Json | None:
    """The relative speed as the object has it; None for the usual speed."""
    if (speed.products, speed.memory) == (EVEN.products, EVEN.memory):
        return None
    return {"products": repr(float(speed.products)), "memory": repr(float(speed.memory))}
