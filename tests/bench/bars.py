"""Hold the figures of a command against its bars."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NONE: Mapping[str, Any] = MappingProxyType({})


def publish(
    figures: Mapping[str, Any],
    *,
    whole: Mapping[str, str] = NONE,
    at_most: Mapping[str, float] = NONE,
    at_least: Mapping[str, float] = NONE,
) -> int:
    """Print the figures as one JSON object, and on stderr those that miss their bar: each key of
    ``whole`` must equal the figure that it names. A name with dots is that of a figure inside of
    others; one that is missing misses its bar. Returns the exit code."""
    unmet = [
        f"{name} is {figures[name]}, expected {figures[every]}, the number of {every}"
        for name, every in whole.items()
        if figures[name] != figures[every]
    ]
    unmet += [
        f"{name} is {found}, expected at most {most}"
        for name, most in at_most.items()
        if not (found := _figure(figures, name)) <= most
    ]
    unmet += [
        f"{name} is {found}, expected at least {least}"
        for name, least in at_least.items()
        if not (found := _figure(figures, name)) >= least
    ]
    for each in unmet:
        print(f"== bar missed: {each}", file=sys.stderr)
    print(json.dumps(figures))
    return 1 if unmet else 0


def _figure(figures: Mapping[str, Any], name: str) -> float:
    """NaN, which meets no bar, if it is missing."""
    found: Any = figures
    for part in name.split("."):
        found = found.get(part, NONE)
    return math.nan if found is NONE else float(found)
