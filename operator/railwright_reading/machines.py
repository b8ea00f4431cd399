"""Which machine of the cost model a node is, by what its labels say of its devices."""

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
    """The kind of its devices as its labels have it; empty if they do not say."""
    return labels.get(PRODUCT, "")


def known(labels: Mapping[str, str]) -> str:
    """Its name in the cost model; empty if that knows none like it."""
    return _BY_PRODUCT.get(device(labels), "")
