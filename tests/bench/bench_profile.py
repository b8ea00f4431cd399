"""What trainings send, derived from their words, beside what was recorded of them: bytes by group.

Each runs with real torch.distributed (gloo) on this machine. Progress goes to stderr, one JSON
object to stdout.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from bench.profile_cases import CASES, GROWN, Case
from fixtures import pre_runs
from railwright import profile
from railwright_conversion import profiles
from railwright_scheduler.communication import derive, measured
from railwright_scheduler.communication.graph import Collective, Communicator, Transfer
from railwright_scheduler.model.profile import Profile

Group = dict[str, Any]


def main() -> None:
    cases = [summarize(compared(case)) for case in CASES]
    grown = [summarize(scaled(small, large)) for small, large in GROWN]
    worst = max(group["error"] for case in (*cases, *grown) for group in case["groups"])
    print(json.dumps({"cases": cases, "scaled": grown, "max_error": worst}))


def summarize(case: dict[str, Any]) -> dict[str, Any]:
    """The same, with a line for each of its groups on stderr."""
    for group in case["groups"]:
        found = f"{group['derived_bytes']:,} derived, {group['measured_bytes']:,} measured"
        print(f"{case['name']}: {group['kind']}: {found}", file=sys.stderr, flush=True)
    return case


def compared(case: Case) -> dict[str, Any]:
    """Runs it, and holds both beside each other; beside groups, what torch does of its own."""
    found = recorded(case)
    seen = measured.communicators(replace(case.workload, profile=found))
    derived = derive.communicators(*case.workload.parts)
    groups = [_group(each, seen) for each in derived]
    return {"name": case.name, "groups": groups, "extras": [*_extras(derived, seen)]}


def scaled(small: Case, large: Case) -> dict[str, Any]:
    """Runs both, and holds what is told of the larger one by the smaller one's profile, as if that
    were derived, beside what the larger one was seen to send."""
    communicators, seen = (
        measured.communicators(replace(large.workload, profile=recorded(case)))
        for case in (small, large)
    )
    name = f"{small.name}, {small.ranks} ranks as {large.ranks}"
    return {"name": name, "groups": [_group(each, seen) for each in communicators]}


def recorded(case: Case) -> Profile:
    """What its ranks recorded."""
    found = pre_runs.recorded(case.command, ranks=case.ranks)
    return profiles.profile(profile.encoded(found))


def _group(derived: Communicator, seen: Iterable[Communicator]) -> Group:
    ours = sum(_bytes(derived, traffic) for traffic in derived.traffic)
    theirs = sum(
        _bytes(each, traffic)
        for each in seen
        for traffic in each.traffic
        if each.name == derived.name and _is_meant(traffic, derived)
    )
    return {
        "kind": derived.name,
        "ranks": derived.ranks,
        "derived_bytes": ours,
        "measured_bytes": theirs,
        "error": round(abs(ours / theirs - 1), 4) if theirs else 1.0,
    }


def _extras(derived: Iterable[Communicator], seen: Iterable[Communicator]) -> Iterator[Group]:
    """What no formula is about, such as flags, losses and norms."""
    named = {each.name: each for each in derived}
    for each in seen:
        for traffic in each.traffic:
            if each.name not in named or not _is_meant(traffic, named[each.name]):
                yield {
                    "kind": each.name,
                    "what": traffic.what,
                    "count": traffic.count,
                    "bytes": _bytes(each, traffic),
                }


def _is_meant(traffic: Transfer, derived: Communicator) -> bool:
    """Whether it is of a kind that formulas are about: no model is in whole numbers."""
    collectives = {each.collective for each in derived.traffic}
    return traffic.collective in collectives and not re.search(r"\bu?int", traffic.what)


def _bytes(communicator: Communicator, traffic: Transfer) -> int:
    """What all ranks of one group send in a step: in a chain its last one sends nothing on."""
    ranks = communicator.ranks
    senders = ranks - 1 if traffic.collective is Collective.SEND else ranks
    return senders * traffic.sent(ranks)


if __name__ == "__main__":
    main()
