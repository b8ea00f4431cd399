"""Who each rank exchanges with, as rows of equal length: what array operations want."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_scheduler.mapping.problem import Exchanges, Indices, Weights


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Row ``r`` of ``of`` has who rank ``r`` exchanges with, and of ``weight`` how much; behind the
    ``count[r]`` of them it is filled up with nobody and nothing."""

    of: Indices
    weight: Weights
    count: Indices


def of(exchanges: Exchanges, *, rows: int) -> Neighbours:
    """Rows from the number of ranks on exchange nothing; nobody has the number behind them."""
    ends = np.concatenate([exchanges.a, exchanges.b])
    fars = np.concatenate([exchanges.b, exchanges.a])
    weights = np.concatenate([exchanges.weight, exchanges.weight])
    order = np.argsort(ends, kind="stable")
    count = np.bincount(ends, minlength=rows)
    first = np.cumsum(count) - count
    column = np.arange(len(ends)) - first[ends[order]]
    width = max(1, int(count.max(initial=0)))
    found = np.full((rows, width), rows)
    weight = np.zeros((rows, width))
    found[ends[order], column] = fars[order]
    weight[ends[order], column] = weights[order]
    return Neighbours(found, weight, count)
