"""The progress of surveys, as it is stored for the next process: the samples of a survey that has
not ended, and the pauses of nodes without a result.

Samples are whole numbers, as a survey of thousands of nodes has to fit the ConfigMap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from railwright_controllers.watch import files
from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey
from railwright_topology.wiring import WiringError

Pair = tuple[str, str]
Whole = Annotated[int, Meta(ge=0, le=1 << 53)]

NS_PER_S, BYTES_PER_KB = 1e9, 1e3


class SurveyProgress(Struct):
    """``stored_s`` is Unix time. A sample has the indices of two nodes, nanoseconds, and kB a
    second; 0 is none. ``pauses`` has, by node, the failures, and the Unix time of its end."""

    stored_s: Whole
    nodes: list[str]
    samples: list[tuple[Whole, Whole, Whole, Whole]]
    pauses: dict[str, tuple[Whole, Whole]]

    def readings(self) -> Iterator[tuple[Pair, Reading]]:
        """All samples, as a survey resumes from them."""
        for one, other, ns, kilobytes in self.samples:
            pair = self.nodes[one], self.nodes[other]
            yield pair, Reading(ns / NS_PER_S, kilobytes * BYTES_PER_KB)


def written(
    survey: Survey | None, pauses: Mapping[str, tuple[int, float]], *, wall_s: float
) -> str:
    """The document with the samples of a survey that has not ended, if any, and these pauses: the
    failures of each node, and the seconds left."""
    samples: Iterable[tuple[tuple[int, int], Reading]] = survey.readings.each() if survey else ()
    found = SurveyProgress(
        round(wall_s),
        [*survey.nodes] if survey else [],
        [
            (*pair, _whole(each.latency_s, NS_PER_S), _whole(each.bytes_per_s, 1 / BYTES_PER_KB))
            for pair, each in samples
        ],
        {node: (failures, max(0, round(wall_s + s))) for node, (failures, s) in pauses.items()},
    )
    return msgspec.json.encode(found).decode()


def parse(text: str) -> SurveyProgress:
    """Read it. Raises WiringError for another document."""
    try:
        found = msgspec.json.decode(text, type=SurveyProgress)
    except msgspec.DecodeError as error:
        raise WiringError(files.PROGRESS, 1, str(error)) from None
    ends = [end for sample in found.samples for end in sample[:2]]
    if max(ends, default=-1) >= len(found.nodes):
        raise WiringError(files.PROGRESS, 1, "a sample is of no node")
    return found


def _whole(value: float | None, factor: float) -> int:
    return round(value * factor) if value is not None and math.isfinite(value) else 0
