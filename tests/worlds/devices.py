"""A torch whose devices are a little memory of this machine, and of which some are broken: written
for tests, as far as devices are measured with it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np


class Tensor:
    """Numbers of this machine's memory, wherever they are said to be."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def copy_(self, source: Tensor) -> None:
        np.copyto(self.numbers, source.numbers)


class Module:
    """What torch has of one kind of accelerators."""

    def __init__(self, addresses: list[str], *, taken: float = 0.0) -> None:
        self.addresses = addresses
        self.taken = taken
        self.waited: list[int] = []
        self.broken: set[int] = set()
        self.unreadable: set[int] = set()
        self.unasked: set[int] = set()
        self.hanging: set[int] = set()
        self.released = threading.Event()

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.addresses)

    def get_device_properties(self, at: int) -> Any:
        if at in self.unreadable:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        known: dict[str, Any] = {"name": "GPU of a test", "total_memory": 80 << 30}
        if self.addresses[at]:
            domain, bus, rest = self.addresses[at].split(":")
            numbers = int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
            known |= dict(
                zip(("pci_domain_id", "pci_bus_id", "pci_device_id"), numbers, strict=True)
            )
        return SimpleNamespace(**known)

    def mem_get_info(self, at: int) -> tuple[int, int]:
        if at in self.unasked:
            raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")
        return int((1 - self.taken) * (80 << 30)), 80 << 30

    def synchronize(self, at: int) -> None:
        if at in self.broken:
            raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")
        if at in self.hanging:
            self.released.wait(60)
        self.waited.append(at)


def torch(**kinds: Module) -> Any:
    """Such a torch; its matrices are as small as can be."""

    def randn(*shape: int, **_: object) -> Tensor:
        return Tensor(np.ones([min(32, rows) for rows in shape], np.float32))

    return SimpleNamespace(
        __version__="9.9",
        float32="f32",
        bfloat16="bf16",
        randn=randn,
        empty_like=lambda like: Tensor(np.empty_like(like.numbers)),
        mm=lambda one, other, out: np.matmul(one.numbers, other.numbers, out=out.numbers),
        **kinds,
    )
