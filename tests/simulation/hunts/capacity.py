"""Mutants of the scheduler: of what nodes have for a gang."""

from __future__ import annotations

from simulation.planted import of_scheduler

HUNTS = (
    of_scheduler(
        "foreign pods are not counted",
        "usage.py",
        "others = add_amounts({}, foreign)",
        "others: dict[str, int] = {}",
        "all",
        1009,
    ),
    of_scheduler(
        "a pod that asks for more is bound",
        "attempt/gang.py",
        "more = _excess(pod.amounts, planned)",
        'more = ""',
        "all",
        1004,
    ),
    of_scheduler(
        "commits reserve nothing",
        "assume.py",
        "return [number for number in range(len(entry.nodes)) if number not in running]",
        "return []",
        "all",
        1009,
    ),
    of_scheduler(
        "assumed capacity is not counted",
        "assume.py",
        "_with_assumed(node, assumed.get(node.name, {}), lost.get(node.name))",
        "_with_assumed(node, {}, lost.get(node.name))",
        "all",
        1009,
    ),
    of_scheduler(
        "nodes look empty",
        "assume.py",
        "_with_assumed(node, assumed",
        "_with_assumed(replace(node, used={}), assumed",
        "all",
        1004,
    ),
)
