"""A node as the scheduler has it, and the machine of the cost model that it is by its labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from railwright_scheduler.cost.hardware import DGX_A100, DGX_H100, HGX_H800
from railwright_scheduler.model.snapshot import Amounts, Node, Taint, Unavailable
from railwright_scheduler.usage import capped

PRODUCT = "nvidia.com/gpu.product"
"""NVIDIA's GPU feature discovery sets it: the name that the driver has, with dashes for spaces."""

_BY_PRODUCT: Mapping[str, str] = MappingProxyType(
    {
        "NVIDIA-A100-SXM4-80GB": DGX_A100.name,
        "NVIDIA-H100-80GB-HBM3": DGX_H100.name,
        "NVIDIA-H800": HGX_H800.name,
    }
)


CONDITION_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
"""Taints that the control plane adds to a node that is not Ready or cordoned. The node's readiness
and its ``unschedulable`` field count instead."""


def device(labels: Mapping[str, str]) -> str:
    """The kind of a node's devices; empty without the label."""
    return labels.get(PRODUCT, "")


def machine_name(labels: Mapping[str, str]) -> str:
    """The node's name in the cost model; empty if the model has no such machine."""
    return _BY_PRODUCT.get(device(labels), "")


def node(
    name: str,
    domains: tuple[str, ...],
    *,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    allocatable: Amounts,
    ready: bool,
    cordoned: bool,
) -> Node:
    """The node in these domains, without pods; nothing is known of its health."""
    unavailable = Unavailable.CORDONED if cordoned else None
    return Node(
        name=name,
        domains=domains,
        allocatable=capped(allocatable),
        used={},
        labels=labels,
        taints=tuple(taint for taint in taints if taint.key not in CONDITION_TAINTS),
        unavailable=unavailable if ready else Unavailable.UNREADY,
        machine=machine_name(labels),
        device=device(labels),
    )
