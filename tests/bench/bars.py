"""Hold the figures of a check against its bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping


def publish(
    figures: Mapping[str, int], *, whole: Mapping[str, str], at_most: Mapping[str, int]
) -> int:
    """Print the figures as one JSON object, and on stderr those that miss their bar: each key of
    ``whole`` must equal the figure that it names. Returns the exit code."""
    unmet = [
        f"{name} is {figures[name]}, expected {figures[every]}, the number of {every}"
        for name, every in whole.items()
        if figures[name] != figures[every]
    ]
    unmet += [
        f"{name} is {figures[name]}, expected at most {most}"
        for name, most in at_most.items()
        if figures[name] > most
    ]
    for each in unmet:
        print(f"== bar missed: {each}", file=sys.stderr)
    print(json.dumps(figures))
    return 1 if unmet else 0
