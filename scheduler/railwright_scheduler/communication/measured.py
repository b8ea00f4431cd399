"""The communicators of a job as a pre-run recorded them, instead of those derived from its words.

The gang of a pre-run may be smaller than the job's: it has fewer replicas, each with as much to do.
What was seen is that of the job then but for what grows with replicas, which does so as the derived
communicators do. Nothing else can be smaller: of a stage or a part that was not there nothing was
seen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from railwright_scheduler.communication import derive, grid, recorded
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Transfer
from railwright_scheduler.communication.grid import Axis
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile
from railwright_scheduler.model.workload import Framework, Parallelism, Recipe, Workload

_GROWING = frozenset({Operation.ALL_GATHER, Operation.ALL_TO_ALL, Operation.GATHER})
"""Operations to which each rank contributes a part, unless the whole is shared."""

SHOWN = 8

DERIVED, PLACED_RANK, RECORDED, PAIRED = 100_000, 100, 50, 3_500
"""Work for a workload's communicators, for each rank of a profile in each place where its groups
may be, for each rank of each of its groups, and for each two ranks that send, where groups are used
as they were recorded."""

PLACES_MAX = 40
"""Along any of five axes, and those of derived communicators."""


class UnfitError(ValueError):
    """A profile that does not fit a job, with the reason."""


def held(workload: Workload, devices: Iterable[str]) -> Workload:
    """The same on these kinds of devices: without its profile if that was taken on others."""
    profile = workload.profile
    if profile is None or not profile.lacks(devices):
        return workload
    return replace(workload, profile=None)


@dataclass(frozen=True, slots=True)
class _Place:
    """Ranks that differ along the same axes, of the pre-run (``then``) and of the job (``now``),
    with their derived traffic."""

    then: Communicator
    now: Communicator

    @property
    def group_set(self) -> frozenset[tuple[int, ...]]:
        """The pre-run's."""
        return frozenset(map(tuple, self.then.grid.groups(*self.then.axes).tolist()))

    def overlap(self, collective: Collective) -> Overlap:
        """The overlap of the derived communicator; none if there is no derived one."""
        found = (each.overlap for each in self.now.traffic if each.collective is collective)
        return next(found, Overlap.NOTHING)

    def growth(self, operation: Operation) -> float:
        """How many times larger a buffer is in the job than it was in the pre-run."""
        collective = recorded.COLLECTIVES[operation]
        then, now = (
            sum(each.size for each in its.traffic if each.collective is collective)
            for its in (self.then, self.now)
        )
        if then:
            return now / then
        if operation in _GROWING:
            return self.now.ranks / self.then.ranks
        return 1.0


def work(workload: Workload) -> int:
    """About what it takes to find them (``WorkBudget``)."""
    profile = workload.profile
    if profile is None:
        return DERIVED
    ranks = [len(kind.groups) * len(kind.groups[0]) for kind in profile.kinds]
    pairs = 0
    if _is_used_as_recorded(workload, profile):
        distances = [recorded.distances(kind) for kind in profile.kinds]
        pairs = sum(count * len(its) for count, its in zip(ranks, distances, strict=True))
    placed = PLACED_RANK * PLACES_MAX * profile.ranks
    return DERIVED + placed + RECORDED * sum(ranks) + PAIRED * pairs


def _is_used_as_recorded(workload: Workload, profile: Profile) -> bool:
    return workload.model is None and profile.ranks == workload.split.ranks and profile.kinds != ()


def communicators(workload: Workload) -> tuple[Communicator, ...]:
    """A workload's communicators, of its profile if it has one. What a rank does with its host
    alone is derived: no process group sees it. An opaque workload has those that its ranks
    recorded, and none without a profile. Raises UnfitError."""
    profile, split = workload.profile, workload.split
    derived = _derived(workload, split, workload.recipe)
    if profile is None:
        return derived if workload.model else ()
    if _is_used_as_recorded(workload, profile):
        return recorded.communicators(profile)
    places = _places(workload, profile)
    groups = {place: place.group_set for place in places}
    found: dict[_Place, dict[tuple[str, Collective], Transfer]] = defaultdict(dict)
    for kind in profile.kinds:
        for place, traffic in _traffic(kind, groups, workload):
            # Kinds are of other groups each: what one of them does the most of, counts.
            named, name = found[place], (traffic.what, traffic.collective)
            named[name] = max(named.get(name, traffic), traffic, key=_sent_bytes)
    seen = (
        replace(place.now, traffic=tuple(found[place].values()))
        for place in places
        if place in found
    )
    return (*seen, *(each for each in derived if each.ranks == 1))


def _sent_bytes(traffic: Transfer) -> int:
    return traffic.count * traffic.size


def _derived(workload: Workload, split: Parallelism, recipe: Recipe) -> tuple[Communicator, ...]:
    """The communicators of the workload split like this; of an opaque one the groups of experts,
    whose axes are not those of the dense grid, without traffic."""
    if workload.model is not None:
        return derive.communicators(workload.model, split, recipe)
    if split.expert == 1:
        return ()
    experts = grid.experts(split, recipe.framework)
    places = {"expert": Axis.EXPERT, "expert data": Axis.DATA, "expert data replicas": Axis.REPLICA}
    return tuple(
        Communicator(name, experts, (axis,), ())
        for name, axis in places.items()
        if experts.size(axis) > 1
    )


def _places(workload: Workload, profile: Profile) -> list[_Place]:
    """Where groups of ranks may be: those of derived communicators, then any along axes."""
    now, recipe = workload.split, workload.recipe
    then = _then(now, profile.ranks)
    if then.ranks > 1 and not profile.kinds:
        raise UnfitError(
            f"nothing was seen of what {then.ranks} ranks send each other: record steps in which "
            "they train"
        )
    batch = recipe.global_batch // now.data * then.data
    ours = {each.name: each for each in _derived(workload, now, recipe)}
    found = [
        _Place(each, ours[each.name])
        for each in _derived(workload, then, replace(recipe, global_batch=batch))
        if each.ranks > 1
    ]
    grids = grid.dense(then, recipe.framework), grid.dense(now, recipe.framework)
    axes = [axis for axis, size in grids[0].axes if size > 1]
    for count in range(1, len(axes) + 1):
        for some in combinations(axes, count):
            name = "all ranks" if count == len(axes) else " and ".join(some)
            if name in ours:
                name = f"{name} alone"
            found.append(_Place(*(Communicator(name, ranks, some, ()) for ranks in grids)))
    return found


def _then(now: Parallelism, ranks: int) -> Parallelism:
    """How a pre-run of so many ranks was split: as the job, into fewer replicas."""
    if now.servers:
        raise UnfitError("parallelism.servers: what ranks send to servers is not recorded")
    whole = now.ranks // now.data
    data = ranks // whole
    if ranks > now.ranks or ranks % whole:
        near = min(max(2, data), now.data) * whole
        raise UnfitError(
            f"the profile is of {ranks} ranks, but replicas of the job have {whole} ranks each and "
            f"there are {now.data}: record it on {near}"
        )
    then = replace(now, data=data)
    if data == 1 < now.data:
        raise UnfitError(
            f"the profile is of one replica, of the job's {now.data}: nothing was seen of what "
            f"replicas send each other; record it on {2 * whole} ranks"
        )
    if data % now.replicas or (data == now.replicas) != (now.data == now.replicas):
        near = now.replicas * (2 if now.data > now.replicas else 1) * whole
        raise UnfitError(
            f"parallelism.replicas is {now.replicas}: the profile's {data} data-parallel ranks "
            f"were not sharded as the job's {now.data} are; record it on {near} ranks"
        )
    spread = now.expert * now.replicas
    if then.stage % spread:
        raise UnfitError(
            f"parallelism.expert is {now.expert}: a stage of the profile had {then.stage} ranks, "
            f"expected a multiple of {spread}"
        )
    return then


def smallest(workload: Workload, *, multiple: int) -> Parallelism:
    """The parallelism of the smallest pre-run that represents the job, with a multiple of this
    number of ranks; that of the job itself if no smaller one does. Raises UnfitError."""
    now = workload.split
    whole, rows = now.ranks // now.data, now.tensor * now.context
    # DeepSpeed's experts are on all tensor-parallel ranks alike.
    kept = now.tensor if workload.recipe.framework is Framework.DEEPSPEED else 1
    spread = now.expert * now.replicas * kept
    data = math.lcm(
        now.replicas, spread // math.gcd(spread, rows), multiple // math.gcd(multiple, whole)
    )
    if data == 1 or data == now.replicas:
        data *= 2
    return now if data >= now.data else _then(now, data * whole)


def _traffic(
    kind: GroupProfile, places: Mapping[_Place, frozenset[tuple[int, ...]]], workload: Workload
) -> Iterator[tuple[_Place, Transfer]]:
    profile = workload.profile
    assert profile is not None
    there = [place for place, groups in places.items() if groups.issuperset(kind.groups)]
    if not there:
        shown = ", ".join(map(str, kind.groups[0][:SHOWN]))
        more = ", …" if len(kind.groups[0]) > SHOWN else ""
        split = workload.split
        raise UnfitError(
            f"ranks {shown}{more} are a group of the profile, but differ along no axes of "
            f"tensor {split.tensor} × context {split.context} × data {split.data} × pipeline "
            f"{split.pipeline}, numbered as by {workload.recipe.framework}"
        )
    sends = [seen for seen in kind.seen if seen.operation is Operation.SEND]
    for seen in kind.seen:
        if seen.operation is Operation.SEND or not seen.size:
            continue
        collective = recorded.COLLECTIVES[seen.operation]
        place = _best(there, (collective,))
        growth = _growth(place, seen, workload)
        calls = recorded.transfer(seen, profile.steps, growth=growth)
        yield place, replace(calls, overlap=place.overlap(collective))
    if sends:
        place = _best(there, (Collective.RING, Collective.SEND))
        virtual = workload.split.virtual if place.now.axes == (Axis.PIPELINE,) else 0
        for traffic in _sent(sends, len(kind.groups[0]), profile.steps, virtual):
            yield place, replace(traffic, overlap=place.overlap(traffic.collective))


def _growth(place: _Place, seen: CallRecord, workload: Workload) -> float:
    """The growth of a buffer. What ranks of an opaque workload gather are taken for weights, which
    are the same for any number of replicas."""
    is_shared = workload.model is None and seen.operation is Operation.ALL_GATHER
    return 1.0 if is_shared else place.growth(seen.operation)


def _best(places: list[_Place], collectives: tuple[Collective, ...]) -> _Place:
    """The one that is derived to do such, of several that are the same ranks."""
    does = (
        place
        for place in places
        if any(each.collective in collectives for each in place.now.traffic)
    )
    return next(does, places[0])


def _sent(sends: list[CallRecord], ranks: int, steps: int, virtual: int) -> Iterator[Transfer]:
    """Traffic between neighbours of a ring, the last and the first included."""
    calls: dict[int, float] = defaultdict(float)
    for seen in sends:
        calls[abs(seen.hop)] += seen.calls / steps
    if odd := sorted(calls.keys() - {1, ranks - 1}):
        raise UnfitError(
            f"ranks of a group of {ranks} send to those {odd[0]} places further: expected only "
            f"neighbours, or the last and the first"
        )
    size = round(sum(seen.size for seen in sends) / sum(seen.calls for seen in sends))
    around = calls[ranks - 1]
    if ranks == 2:
        # Both directions of its ring are the same two ranks: stages determine the calls of each.
        around *= (virtual - 1) / (2 * virtual - 1) if virtual else 0.5
        calls[1] -= around
    around = min(around, calls[1])
    elements = ", ".join(sorted({seen.element for seen in sends}))
    ways = ((Collective.SEND, calls[1] - around), (Collective.RING, around))
    for collective, count in ways:
        if round(count):
            yield Transfer(f"sends of {elements}", collective, size, round(count))
