"""What is held of the rates of one node's devices, as its agent tells of them again and again."""

from __future__ import annotations

from collections.abc import Iterable

from railwright_topology.parts import PARTS_MAX, Kind, Look, Rates


def held(before: Iterable[Rates], now: Iterable[Rates], looks: Iterable[Look]) -> tuple[Rates, ...]:
    """By device, of what was held before and of a document's rates and looks.

    A device keeps its rates until others are told of it: an agent that begins has none yet, and
    cannot measure a device again before the training on it ends. It has none any more once the
    looks show accelerators and no such one, and so nobody is believed about those.
    """
    shown = {part.pci for look in looks for part in look.parts if part.kind == Kind.ACCELERATOR} - {
        ""
    }
    found = {each.device: each for each in now}
    found |= {each.device: each for each in before if each.device not in found}
    # What has no address, such as xpu:0 or the processors, is in no look.
    there = [
        each
        for each in found.values()
        if not shown or "." not in each.device or each.device in shown
    ]
    return tuple(sorted(there[:PARTS_MAX], key=lambda each: each.device))
