"""Compare the plans of drawn courses with the recorded digests of them, or record them anew.

A refactoring leaves every plan as it was. ``tests/simulation/test_recorded_plans.py`` fails when
one changed, and names the first changed cycle of each course. In ``tests``:

    python -m simulation.recorded_plans show 4 7             print the plan of course 4, cycle 7
    python -m simulation.recorded_plans record "the reason"  record the plans as they are now

Print a plan before and after the change to compare them. The cycles behind a changed one begin
from another state. Of a mapping request counts what it is for and its result, not its parts.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from pprint import pprint
from typing import get_args

import numpy as np

from railwright_scheduler.attempt.assessment import Assessment
from railwright_scheduler.attempt.gang import Action
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.plan import Plan
from simulation.drawn_courses import Course

COURSES = (*range(36), 45, 67)
RECORD = Path(__file__).parent / "recorded_plans.txt"
SHOWN_MAX = 8

DIGITS = 9
"""Of floats: predicted times may differ in the last ones from CPU to CPU."""

_TAGGED = (*get_args(Reason), *get_args(Action), *get_args(Assessment))
"""Classes of unions, of which some have equal fields."""

Digests = Mapping[int, Sequence[str]]
"""The digests of the cycles of each course."""


def plain(value: object) -> object:
    """The value as lists and text, without the names of its fields."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = [type(value).__name__] if isinstance(value, _TAGGED) else []
        fields = (field.name for field in dataclasses.fields(value) if field.compare)
        return [*tag, *(plain(getattr(value, name)) for name in fields)]
    if isinstance(value, Mapping):
        return sorted(([plain(key), plain(each)] for key, each in value.items()), key=repr)
    if isinstance(value, Set):
        return sorted((plain(each) for each in value), key=repr)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return value if value is None or isinstance(value, str | int) else repr(value)


def digest(plan: Plan) -> str:
    """The digest of one plan."""
    mappings = {uid: (its.gangs, its.age_s, its.outcome) for uid, its in plan.mappings.items()}
    values = plain([dataclasses.replace(plan, mappings={}), mappings])
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:8]


def digests(course: int) -> list[str]:
    """The digests of the plans of one course."""
    return [digest(plan) for _, plan in Course(course).plans()]


def recorded() -> Digests:
    """The recorded digests."""
    lines = (line.split() for line in RECORD.read_text().splitlines() if line[:1] != "#")
    return {int(course): its for course, *its in lines}


def changed(now: Digests, before: Digests) -> str:
    """Which courses changed, from which cycle on, and what to do; empty if none did."""
    first = {
        course: next(
            at
            for at, pair in enumerate(zip_longest(its, before.get(course, ())))
            if pair[0] != pair[1]
        )
        for course, its in now.items()
        if its != before.get(course)
    }
    if not first:
        return ""
    named = [f"course {course} from cycle {cycle}" for course, cycle in first.items()]
    more = f" and {len(named) - SHOWN_MAX} more" if len(named) > SHOWN_MAX else ""
    course, cycle = next(iter(first.items()))
    return (
        f"the plans of {len(first)} of {len(now)} courses changed: "
        f"{', '.join(named[:SHOWN_MAX])}{more}.\n"
        f"In tests, `python -m simulation.recorded_plans show {course} {cycle}` prints the first; "
        "compare it with that of the commit before. If plans are meant to change, run "
        '`python -m simulation.recorded_plans record "the reason"` and commit the file'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show")
    show.add_argument("course", type=int)
    show.add_argument("cycle", type=int)
    commands.add_parser("record").add_argument("reason")
    chosen = parser.parse_args()
    if chosen.command == "show":
        pprint([*Course(chosen.course).plans()][chosen.cycle][1], width=100)
        return
    lines = (" ".join([str(course), *digests(course)]) for course in COURSES)
    reason = " ".join(chosen.reason.split())
    RECORD.write_text(
        "# Digests of plans, one course a line (recorded_plans.py). Why they were recorded:\n"
        f"# {reason}\n" + "".join(f"{line}\n" for line in lines)
    )


if __name__ == "__main__":
    main()
