"""The findings of a survey: the domains of nodes, and what was measured at each tier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from railwright_topology.probing.readings import METRICS, NOISE_MIN, Floats
from railwright_topology.probing.scales import finite
from railwright_topology.probing.survey import Survey


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured between nodes that meet at a tier, over so many pairs.

    ``gap`` is how clearly the tier is separated from the one inside: the distance of their medians
    in deviations of their pairs (Ashman's D). Below some 3 it is doubtful; the nearest tier has no
    gap.
    """

    pairs: int
    latency_s: float | None
    bytes_per_s: float | None
    gap: float | None


@dataclass(frozen=True, slots=True)
class Findings:
    """``tiers`` map each node to the first node of its domain, the nearest tier first, without
    nodes that were not placed; ``figures`` has one entry for each. ``strange`` are sentences on
    nodes that are slow, do not answer, or were not placed within the budget. ``pairs`` is the
    number of different pairs measured. ``leaving`` has, for each tier, how many nodes can send out
    of a domain at once, by the domain's first node."""

    tiers: tuple[Mapping[str, str], ...]
    figures: tuple[Figures, ...]
    strange: tuple[str, ...]
    pairs: int
    leaving: tuple[Mapping[str, float], ...] = ()


def of(survey: Survey) -> Findings:
    """The findings of a survey, finished or not."""
    tiers, levels = _tiers(survey)
    figures = tuple(
        _figures(survey, its, levels[at - 1] if at else ()) for at, its in enumerate(levels)
    )
    return Findings(tiers, figures, tuple(_strange(survey)), survey.pairs)


def _tiers(survey: Survey) -> tuple[tuple[dict[str, str], ...], list[tuple[int, ...]]]:
    """The groupings, and which levels of the chain each of them is: two steps between which no
    domain differs are one tier."""
    groupings: list[dict[str, str]] = []
    levels: list[tuple[int, ...]] = []
    for tier, labels in enumerate(survey.clustering.labels):
        names: dict[int, str] = {}
        grouping = {}
        for node in np.flatnonzero(survey.clustering.placed(tier)).tolist():
            name = survey.nodes[node]
            grouping[name] = names.setdefault(int(labels[node]), name)
        if groupings and groupings[-1] == grouping:
            levels[-1] += (tier,)
        else:
            groupings.append(grouping)
            levels.append((tier,))
    return tuple(groupings), levels


def _figures(survey: Survey, levels: tuple[int, ...], inner: tuple[int, ...]) -> Figures:
    its = survey.clustering.farness[:, survey.clustering.levels.at(*levels)]
    beneath = survey.clustering.farness[:, survey.clustering.levels.at(*inner)]
    latency, bandwidth = (finite(its[metric]) for metric in METRICS)
    gaps = [_gap(finite(beneath[metric]), its) for metric, its in enumerate((latency, bandwidth))]
    return Figures(
        pairs=its.shape[1],
        latency_s=float(np.exp(np.median(latency))) if len(latency) else None,
        bytes_per_s=float(np.exp(-np.median(bandwidth))) if len(bandwidth) else None,
        gap=max(gaps) if inner else None,
    )


def _gap(inner: Floats, its: Floats) -> float:
    """Ashman, Bird and Zepf, 1994; with deviations that hiccups do not widen, and none that chance
    makes nothing of."""
    if not len(inner) or not len(its):
        return 0.0
    spreads = [
        max(NOISE_MIN, 1.4826 * float(np.median(np.abs(each - np.median(each)))))
        for each in (inner, its)
    ]
    return float(np.median(its) - np.median(inner)) / math.sqrt(sum(s * s for s in spreads) / 2)


def _strange(survey: Survey) -> Iterator[str]:
    for node in sorted(survey.lost):
        yield f"{survey.nodes[node]}: {survey.lost[node]}"
    slow = [sentence for metric in METRICS for sentence in _slow(survey, metric)]
    yield from slow
    named = {sentence.partition(" ")[0] for sentence in slow}
    for node in np.flatnonzero(survey.muted.all(axis=0)).tolist():
        if survey.nodes[node] not in named and node not in survey.lost:
            yield f"{survey.nodes[node]} was not placed: it is slow, or alone in its domain"
    for node in np.flatnonzero(survey.clustering.there & ~survey.clustering.placed(0)).tolist():
        yield f"{survey.nodes[node]} could not be placed at the nearest tier"


def _slow(survey: Survey, metric: int) -> Iterator[str]:
    """Nodes that reach even their nearest node less well than usual at that tier; nodes without a
    tier are compared with the outermost. The slowest comes first, and its pairs are then ignored
    for the others."""
    clustering, ends = survey.clustering, survey.readings.ends
    farness = survey.readings.farness()[metric]
    values = [finite(farness[clustering.levels.at(tier)]) for tier in range(clustering.tiers)]
    usual = np.array([float(np.median(each)) if len(each) else math.nan for each in values])
    muted = survey.muted[metric, ends].any(axis=0)
    valid = clustering.levels.at(*range(clustering.tiers)) & ~muted
    expected = np.where(valid, usual[clustering.levels.low], np.where(muted, usual[-1], math.nan))
    left = ~np.isnan(farness - expected)
    while left.any():
        own, others = np.full((2, len(survey.nodes)), math.inf)
        for side in ends[:, left]:
            np.minimum.at(own, side, farness[left])
            np.minimum.at(others, side, expected[left])
        pairs = np.bincount(ends[:, left].ravel(), minlength=len(own))
        beyond = np.where(pairs > 0, own - np.where(pairs > 0, others, 0), -math.inf)
        # Of two that only have each other, the one that was measured more often has a control.
        slowest = int(np.lexsort((pairs, beyond))[-1])
        if beyond[slowest] <= survey.ladder.scales[metric].slow:
            return
        yield f"{survey.nodes[slowest]} {_compared(metric, own[slowest], others[slowest])}"
        left &= (ends != slowest).all(axis=0)


def _compared(metric: int, own: float, usual: float) -> str:
    if metric:
        own, usual = math.exp(-own), math.exp(-usual)
        return f"reaches others with {own:.3g} bytes a second, others reach {usual:.3g}"
    return f"reaches others in {math.exp(own):.3g} s, others in {math.exp(usual):.3g} s"
