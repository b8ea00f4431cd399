"""Kubernetes quantities to exact integers: CPU in millicores, memory in bytes, devices in pieces.

``1500m``, ``1.5``, ``2Gi``, ``1e3`` are one grammar (``resource.Quantity``). Values are computed as
fractions, never as floats. CPU and bytes round up to the unit, as Kubernetes does; a device cannot
be split, so a fraction of one is an error.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction

QUANTITY_MAX = 2**63 - 1
"""In the base unit: what Kubernetes holds in 64 bits."""

CACHED_MAX = 4096
"""Thousands of nodes and pods have the same few amounts."""

_LENGTH_MAX = 64
_EXPONENT_MAX = 999
"""Beyond it every number in so many characters is too large, or rounds as with it."""

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_IN_BYTES = frozenset({"memory", "ephemeral-storage"})


class QuantityError(ValueError):
    """An amount that cannot be used: the value seen, and what was expected."""


@functools.lru_cache(CACHED_MAX)
def amount(resource: str, text: str) -> int:
    """The amount of this resource in its base unit: millicores, bytes, or pieces.

    Raises QuantityError.
    """
    if resource == "cpu":
        return cpu_millis(text)
    if resource in _IN_BYTES or resource.startswith("hugepages-"):
        return bytes_of(text)
    return pieces(text)


@functools.lru_cache(CACHED_MAX)
def counted(resource: str, text: str) -> int:
    """The same of a pod that is there, as Kubernetes counts it: a part of a piece as a whole one,
    and what 64 bits do not hold as 0."""
    try:
        value = _value(text, "an amount")
    except QuantityError:
        return 0
    units = math.ceil(value * 1000 if resource == "cpu" else value)
    return units if units <= QUANTITY_MAX else 0


def cpu_millis(text: str) -> int:
    """CPU in millicores, rounded up: ``1.5`` and ``1500m`` are 1500. Raises QuantityError."""
    return _bounded(text, math.ceil(_value(text, "CPU, such as 8 or 500m") * 1000))


def bytes_of(text: str) -> int:
    """Bytes, rounded up: ``1Gi`` is 1073741824, ``1G`` 1000000000. Raises QuantityError."""
    return _bounded(text, math.ceil(_value(text, "bytes, such as 64Gi or 500M")))


def pieces(text: str) -> int:
    """A whole number of devices or pods: ``8``. Raises QuantityError, also for a fraction."""
    expected = "a whole number, such as 8"
    value = _value(text, expected)
    if value.denominator != 1:
        raise QuantityError(
            f"{text!r} is not {expected}; the nearest are {math.floor(value)} and "
            f"{math.ceil(value)}"
        )
    return _bounded(text, value.numerator)


def _value(text: str, expected: str) -> Fraction:
    match = _GRAMMAR.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None or (match["sign"] == "-" and Fraction(match["number"])):
        raise QuantityError(f"{text[:_LENGTH_MAX]!r} is not a quantity of 0 or more: {expected}")
    number = Fraction(match["number"])
    suffix = match["suffix"]
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix else int(match["exponent"] or 0)
    power = Fraction(10 ** min(abs(exponent), _EXPONENT_MAX))
    return number * power if exponent >= 0 else number / power


def _bounded(text: str, value: int) -> int:
    if value > QUANTITY_MAX:
        raise QuantityError(f"{text!r} is too large: at most {QUANTITY_MAX} in the base unit")
    return value
