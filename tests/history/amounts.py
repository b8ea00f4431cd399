"""What a stored pod takes and a stored node has, as exact integers; written apart from the product.

CPU counts in millicores, memory and storage in bytes, all else in pieces.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Json = Mapping[str, Any]
Amounts = dict[str, int]

_SCALES: dict[str, Fraction] = {"": Fraction(1)}
_SCALES |= {suffix: Fraction(1000) ** (power + 1) for power, suffix in enumerate("kMGTPE")}
_SCALES |= {f"{suffix}i": Fraction(1024) ** (power + 1) for power, suffix in enumerate("KMGTPE")}
_SCALES |= {suffix: Fraction(1, 1000 ** (power + 1)) for power, suffix in enumerate("mun")}


def of_pod(spec: Json) -> Amounts:
    """What the scheduler must count for a pod: the most it takes at any one time, and one pod."""
    running = _sum(_asked(container) for container in spec["containers"])
    beside: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside = _sum([beside, _asked(container)])
            most = _most(most, beside)
        else:
            most = _most(most, _sum([beside, _asked(container)]))
    taken = _most(most, _sum([running, beside])) | _asked(spec)
    return _sum([taken, _read(spec.get("overhead") or {}), {"pods": 1}])


def of_node(status: Json) -> Amounts:
    """What a node has for pods."""
    return _read(status.get("allocatable") or {})


def _asked(holder: Json) -> Amounts:
    return _read((holder.get("resources") or {}).get("requests") or {})


def _read(texts: Mapping[str, object]) -> Amounts:
    return {name: _integer(name, str(text)) for name, text in texts.items()}


def _integer(name: str, text: str) -> int:
    found = re.fullmatch(r"([0-9.]+)(?:[eE]([0-9]+)|([a-zA-Z]*))", text)
    assert found is not None, f"{name}: {text!r} is stored, expected a quantity"
    number, exponent, suffix = found.groups()
    value = Fraction(number) * (10 ** int(exponent) if exponent else _SCALES[suffix or ""])
    return math.ceil(value * 1000 if name == "cpu" else value)


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: collections.Counter[str] = collections.Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
