"""A node as the scheduler has it, and the machine of the cost model that it is by its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from railwright_scheduler.cost.hardware import DGX_A100, DGX_H100, HGX_H800, MI300X_PLATFORM
from railwright_scheduler.model.snapshot import Amounts, Node, Taint, Unavailable
from railwright_scheduler.usage import capped

PRODUCT = "nvidia.com/gpu.product"
"""NVIDIA's GPU feature discovery sets it: the name that the driver has, with dashes for spaces."""

_BY_PRODUCT: Mapping[str, str] = MappingProxyType(
    {
        "NVIDIA-A100-SXM4-80GB": DGX_A100.name,
        "NVIDIA-H100-80GB-HBM3": DGX_H100.name,
        "NVIDIA-H800": HGX_H800.name,
        "AMD-Instinct-MI300X": MI300X_PLATFORM.name,
        "AMD-Instinct-MI300X-VF": MI300X_PLATFORM.name,
    }
)
"""The machine of the cost model by the product name of a node's devices."""

_BY_MODEL: Mapping[str, str] = MappingProxyType(
    {
        "10de:20b2": "NVIDIA-A100-SXM4-80GB",
        "10de:2330": "NVIDIA-H100-80GB-HBM3",
        "10de:2324": "NVIDIA-H800",
        "1002:74a1": "AMD-Instinct-MI300X",
        "1002:74b5": "AMD-Instinct-MI300X-VF",
    }
)
"""The same products by their PCI vendor and device, as the PCI ID Repository lists them."""


CONDITION_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
"""Taints that the control plane adds to a node that is not Ready or cordoned. The node's readiness
and its ``unschedulable`` field count instead."""


def product(models: Iterable[str]) -> str:
    """The product name of devices with these PCI vendors and devices; empty if they differ or the
    cost model has no such machine."""
    names = {_BY_MODEL.get(each, "") for each in models}
    return names.pop() if len(names) == 1 else ""


def is_known(device: str) -> bool:
    """Whether the cost model has the machine with devices of this product name."""
    return device in _BY_PRODUCT


def node(
    name: str,
    domains: tuple[str, ...],
    *,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    allocatable: Amounts,
    ready: bool,
    cordoned: bool,
    discovered: str,
) -> Node:
    """The node in these domains, without pods. ``discovered`` is the product name of its devices in
    its NodeHealth. It precedes the label, which may add that they are partitions or shared."""
    label = labels.get(PRODUCT, "")
    device = label if label.startswith(discovered) else discovered
    unavailable = Unavailable.CORDONED if cordoned else None
    return Node(
        name=name,
        domains=domains,
        allocatable=capped(allocatable),
        used={},
        labels=labels,
        taints=tuple(taint for taint in taints if taint.key not in CONDITION_TAINTS),
        unavailable=unavailable if ready else Unavailable.UNREADY,
        machine=_BY_PRODUCT.get(device, ""),
        device=device,
    )
