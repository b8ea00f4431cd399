"""Amounts, counts and lists as text, for sentences to people."""

from __future__ import annotations

_BINARY_UNITS = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DIGITS_EXACT = 5
_LISTED_MAX = 5


def amount(resource: str, value: int) -> str:
    """An amount with its resource: 1500 of cpu is ``1.5 cpu``, 2**30 of memory ``1Gi memory``."""
    return f"{number(resource, value)} {resource}"


def number(resource: str, value: int) -> str:
    """The value in the unit of its resource."""
    if resource == "cpu":
        return _cores(value)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return _bytes(value)
    return str(value)


def compared(resource: str, one: int, other: int) -> tuple[str, str]:
    """Two values in the unit of their resource; as they are if they would read the same."""
    texts = number(resource, one), number(resource, other)
    return texts if texts[0] != texts[1] else (str(one), str(other))


def count(number: int, thing: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: tuple[str, ...]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _LISTED_MAX
    return ", ".join(names[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _cores(millicores: int) -> str:
    whole, rest = divmod(millicores, 1000)
    if rest and not whole:
        return f"{millicores}m"
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") if rest else str(whole)


def _bytes(count: int) -> str:
    """The largest binary unit that is exact in few digits, else two decimals, rounded down."""
    largest = ""
    for power, unit in zip(range(len(_BINARY_UNITS), 0, -1), _BINARY_UNITS, strict=True):
        whole, rest = divmod(count, 1024**power)
        if whole and not rest and len(str(whole)) <= _DIGITS_EXACT:
            return f"{whole}{unit}"
        if whole and not largest:
            largest = f"{whole}.{rest * 100 // 1024**power:02d}{unit}"
    return largest or str(count)
