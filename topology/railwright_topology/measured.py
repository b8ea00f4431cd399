"""What is held of the rates of one node's devices, as its agent tells of them again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from railwright_topology.parts import PARTS_MAX, Kind, Look, Rates

NOISE = 0.02
"""Two measurements of one device that did not change differ by less. A rate that stayed within it
is told as it was, or devices at the border of what is slow would be news each time that they are
measured, and every running job judged again for it. It is held against what is held, so what
becomes slower bit by bit is found out all the same."""


def held(before: Iterable[Rates], now: Iterable[Rates], looks: Iterable[Look]) -> tuple[Rates, ...]:
    """By device, of what was held before and of a document's rates and looks.

    A device keeps its rates until others are told of it: an agent that begins has none yet, and
    cannot measure a device again before the training on it ends. A rate that changed by no more
    than NOISE is the one before. Where looks show accelerators, no others are believed or held.
    """
    shown = {part.pci for look in looks for part in look.parts if part.kind == Kind.ACCELERATOR} - {
        ""
    }
    old = {each.device: each for each in before}
    found = {each.device: _steady(each, old.get(each.device, each)) for each in now}
    found |= {device: its for device, its in old.items() if device not in found}
    # What has no address, such as xpu:0 or the processors, is in no look.
    there = [
        each
        for each in found.values()
        if not shown or "." not in each.device or each.device in shown
    ]
    return tuple(sorted(there[:PARTS_MAX], key=lambda each: each.device))


def _steady(now: Rates, before: Rates) -> Rates:
    if (now.model, now.by) != (before.model, before.by):
        return now
    return replace(
        now,
        flop_per_s=_same_or(now.flop_per_s, before.flop_per_s),
        memory_bytes_per_s=_same_or(now.memory_bytes_per_s, before.memory_bytes_per_s),
    )


def _same_or(now: int, before: int) -> int:
    return before if abs(now - before) <= NOISE * before else now
