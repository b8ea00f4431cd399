"""The machine of the cost model that a node is, by the labels of its devices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from railwright_scheduler.cost.hardware import DGX_A100, DGX_H100, HGX_H800

PRODUCT = "nvidia.com/gpu.product"
"""NVIDIA's GPU feature discovery sets it: the name that the driver has, with dashes for spaces."""

_BY_PRODUCT: Mapping[str, str] = MappingProxyType(
    {
        "NVIDIA-A100-SXM4-80GB": DGX_A100.name,
        "NVIDIA-H100-80GB-HBM3": DGX_H100.name,
        "NVIDIA-H800": HGX_H800.name,
    }
)


def device(labels: Mapping[str, str]) -> str:
    """The kind of a node's devices; empty without the label."""
    return labels.get(PRODUCT, "")


def machine_name(labels: Mapping[str, str]) -> str:
    """The node's name in the cost model; empty if the model has no such machine."""
    return _BY_PRODUCT.get(device(labels), "")
