"""What a job sends across the border of each domain in a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from railwright_cli.gang import Gang
from railwright_scheduler import traffic
from railwright_topology.fabric import UNKNOWN, Fabric


@dataclass(frozen=True, slots=True)
class Crossing:
    """Bytes a step by level and domain; none where it is not known what the job does."""

    bytes: Mapping[tuple[int, str], int] = field(default_factory=dict)

    def of(self, level: int, domain: str) -> int | None:
        return self.bytes.get((level, domain))

    @property
    def most(self) -> int:
        """Across any border."""
        return max(self.bytes.values(), default=0)


def of(fabric: Fabric, gang: Gang) -> Crossing:
    """A node of no known domain is alone in its own, of which nothing is told."""
    if gang.workload is None or not gang.nodes or not fabric.levels:
        return Crossing()
    named = []
    for level in range(len(fabric.levels)):
        domains = ((fabric.place(node)[level], node) for node in gang.nodes)
        named.append([(domain, node if domain == UNKNOWN else "") for domain, node in domains])
    numbers = [{key: at for at, key in enumerate(dict.fromkeys(level))} for level in named]
    levels = [[number[key] for key in its] for number, its in zip(numbers, named, strict=True)]
    sent = traffic.crossing(gang.workload, gang.ranks_per_node, levels)
    return Crossing(
        {
            (level, domain): sent[level][at]
            for level, number in enumerate(numbers)
            for (domain, _), at in number.items()
            if domain != UNKNOWN
        }
    )
