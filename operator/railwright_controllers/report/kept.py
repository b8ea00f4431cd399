"""What stays published of the reports of agents until they have reported to this process. Pure.

The Fabric is the only memory of it: after a restart `FabricReporter` takes it from there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from railwright_controllers.report import fabric
from railwright_controllers.report.fabric import Status

OF_REPORTS = frozenset(
    {"conflictCount", "conflicts", "hardware", "measuredNodes", "rails", "slow", "slowCount"}
)
"""The fields that reports of agents always take part in. If cables are among the sources, they
take part in all: they show which adapters are front-end."""


def fields(published: Mapping[str, Any], names: Iterable[str], nodes: Container[str]) -> Status:
    """The published fields of these names, without the entries that are only of a node that is
    gone. Nodes with the same hardware and aligned rails are published as numbers alone: in these a
    node that is gone still counts."""
    status: Status = {name: published.get(name) for name in names}
    for name, count in (("slow", "slowCount"), ("conflicts", "conflictCount")):
        listed = status[name] or []
        status[name] = entries(listed, nodes)
        if status[count] is not None:
            status[count] -= len(listed) - len(status[name])
    status["hardware"] = [
        each for each in status["hardware"] or () if each["nodes"] > 1 or each["first"] in nodes
    ]
    if rails := status["rails"]:
        miscabled = rails.get("miscabled") or []
        gone = {each["node"] for each in miscabled if each["node"] not in nodes}
        counted = rails["nodes"] - len(gone)
        status["rails"] = rails | {"nodes": counted, "miscabled": entries(miscabled, nodes)}
    return status


def entries(listed: Iterable[Status], nodes: Container[str]) -> list[Status]:
    """The entries of no node, of several, or of one that is there."""
    return [
        each
        for each in listed
        if "node" not in each or each["node"] in nodes or fabric.SAME in each["message"]
    ]
