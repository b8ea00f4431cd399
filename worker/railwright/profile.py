"""Profiles: the traffic between a job's ranks in a few steps, and their compute time.

Each rank records its own part (``Recorded``); ``merged`` makes one document of all parts
(``Profile``), in which groups of one kind, such as those of all tensor-parallel ranks, occur once.
Both are JSON and decoded as the messages in ``railwright.protocol``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from railwright import protocol, strides
from railwright.strides import Run, Runs

VERSION = 1
BYTES_MAX = 512 * 1024
"""Of either document; a ConfigMap takes twice as much."""

FILES = "rank-*.json"
"""What ranks leave in a folder."""

RANKS_MAX = 16_384
STEPS_MAX = 1_000
CALLS_MAX = 128
"""About what fits into one message."""

KINDS_MAX = 64
TRAFFIC_MAX = 256
GROUPS_A_RANK, KINDS_A_RANK = 8, 32
"""Groups of one kind, and of all kinds, that a rank is in on average: a reader of a profile lists
each of them. Frameworks make about a dozen for each rank."""

SHOWN_MAX = 8
DEVICES_MAX = 8
DEVICE_BYTES_MAX = 64

ELEMENT = re.compile("[a-z0-9_]{1,32}")

Version = Annotated[int, protocol.Between(VERSION, protocol.VERSION_MAX)]
Steps = Annotated[int, protocol.Between(1, STEPS_MAX)]
RankCount = Annotated[int, protocol.Between(1, RANKS_MAX)]
Count = Annotated[int, protocol.Between(1, protocol.STEP_MAX)]
Bytes = Annotated[int, protocol.Between(0, 2**63 - 1)]
Device = Annotated[str, protocol.AtMost(DEVICE_BYTES_MAX)]
"""What torch calls a kind of device, such as NVIDIA H100 80GB HBM3."""


class Operation(StrEnum):
    """What ranks of a group did together, or one of them to another; readers leave OTHER out."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    OTHER = "other"


AnyOperation = Annotated[Operation, protocol.Neutral(Operation.OTHER)]
"""An operation of a later version is read as OTHER."""


class MismatchError(ValueError):
    """Parts that are not of one recording: which, what was seen, what was expected."""


@dataclass(frozen=True, slots=True)
class Calls:
    """One rank's calls of one kind, in all recorded steps.

    ``size`` is the bytes of the whole buffer (reduced, gathered in the end, or sent), over all
    calls. ``seconds`` go from the start to the end of each call, with the wait for other ranks;
    None where that cannot be measured. ``to`` is the receiver.
    """

    group: Runs
    operation: AnyOperation
    element: protocol.Name
    calls: Count
    size: Bytes
    seconds: float | None = None
    to: protocol.Rank | None = None

    def __post_init__(self) -> None:
        _check_element("Calls", self.element)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One rank's part. ``compute_s`` is the compute time if the device is the CPU. ``device`` is
    the kind of its device; empty if unknown.

    Raises ProtocolError for ranks that do not exist.
    """

    rank: protocol.Rank
    ranks: RankCount
    steps: Steps
    step_s: float
    compute_s: float | None
    calls: Annotated[tuple[Calls, ...], protocol.AtMost(CALLS_MAX)]
    device: Device = ""
    version: Version = VERSION

    def __post_init__(self) -> None:
        for calls in self.calls:
            _check_ranks("Recorded.calls", calls.group, self.ranks)
            if calls.to is not None:
                _check_ranks("Recorded.calls", (Run(calls.to),), self.ranks)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The calls of each rank of a group, in all recorded steps, as in ``Calls``.

    For a send, ``hop`` is the position of the receiver in the group relative to the sender; for
    other calls it is 0. ``seconds`` are those of the rank that waited least.
    """

    operation: AnyOperation
    element: protocol.Name
    calls: Count
    size: Bytes
    seconds: float | None = None
    hop: Annotated[int, protocol.Between(1 - protocol.RANKS_MAX, protocol.RANKS_MAX - 1)] = 0

    def __post_init__(self) -> None:
        _check_element("Traffic", self.element)


@dataclass(frozen=True, slots=True)
class Kind:
    """Groups that are alike: ``group`` is one of them, and ``firsts`` the lowest rank of each.

    Of unequal ones, such as stages that hold more than others, ``traffic`` has the most.
    """

    group: Runs
    firsts: Runs
    traffic: Annotated[tuple[Traffic, ...], protocol.AtMost(TRAFFIC_MAX)]


@dataclass(frozen=True, slots=True)
class Profile:
    """A job's communication, as recorded on so many ``ranks``.

    ``step_s`` is the mean of all steps and ranks; ``compute_s`` that of the rank that computed
    the longest, None if unknown. ``devices`` are the kinds of the ranks' devices, the most frequent
    ones if there are more. Raises ProtocolError for ranks that do not exist.
    """

    ranks: RankCount
    steps: Steps
    step_s: float
    compute_s: float | None
    kinds: Annotated[tuple[Kind, ...], protocol.AtMost(KINDS_MAX)]
    devices: Annotated[tuple[Device, ...], protocol.AtMost(DEVICES_MAX)] = ()
    version: Version = VERSION

    def __post_init__(self) -> None:
        whole = 0
        for kind in self.kinds:
            groups, members = (
                _check_ranks("Profile.kinds", runs, self.ranks)
                for runs in (kind.firsts, kind.group)
            )
            whole += groups * members
            too_many = groups * members > GROUPS_A_RANK * self.ranks
            if too_many or whole > KINDS_A_RANK * self.ranks:
                raise protocol.ProtocolError(
                    f"Profile.kinds: seen {groups} groups of {members} ranks each, "
                    f"expected fewer, of {self.ranks} ranks"
                )


@dataclass(frozen=True, slots=True)
class Handover:
    """The message of a launcher with the recording of one of its ranks."""

    member: protocol.Member
    part: Recorded


def encoded(document: Recorded | Profile) -> bytes:
    """As JSON. Raises ProtocolError when it is larger than a reader takes."""
    return protocol.encode(document, bytes_max=BYTES_MAX)


def recorded(data: bytes) -> Recorded:
    """One rank's part. Raises ProtocolError."""
    return protocol.decode(Recorded, data, bytes_max=BYTES_MAX)


def profile(data: bytes) -> Profile:
    """A whole profile. Raises ProtocolError."""
    return protocol.decode(Profile, data, bytes_max=BYTES_MAX)


def merged(parts: Iterable[Recorded]) -> Profile:
    """One profile of all ranks' parts, in whatever order.

    Raises MismatchError unless each rank of one recording is there once, ProtocolError for a
    profile beyond the bounds of readers.
    """
    found = sorted(parts, key=lambda part: part.rank)
    _demand_one_recording(found)
    computed = [part.compute_s for part in found if part.compute_s is not None]
    devices = Counter(sorted(part.device for part in found if part.device))
    whole = Profile(
        ranks=found[0].ranks,
        steps=found[0].steps,
        step_s=sum(part.step_s for part in found) / len(found),
        compute_s=max(computed) if len(computed) == len(found) else None,
        kinds=tuple(_kinds([*_collectives(found), *_sends(found)])),
        devices=tuple(sorted(device for device, _ in devices.most_common(DEVICES_MAX))),
    )
    return profile(encoded(whole))


def _check_ranks(where: str, runs: Sequence[Run], ranks: int) -> int:
    """How many they are; raises ProtocolError unless they are some of so many ranks."""
    count = sum(run.count for run in runs)
    last = max((run.last for run in runs), default=-1)
    if not 0 < count <= ranks or last >= ranks:
        seen = f"{count} ranks, the last of them {last}"
        raise protocol.ProtocolError(f"{where}: seen {seen}, expected some of 0 to {ranks - 1}")
    return count


def _check_element(kind: str, element: str) -> None:
    if not ELEMENT.fullmatch(element):
        expected = "a type's name in small letters, such as bfloat16"
        raise protocol.ProtocolError(
            f"{kind}.element: seen {ascii(element)[:60]}, expected {expected}"
        )


def _demand_one_recording(parts: Sequence[Recorded]) -> None:
    if not parts:
        raise MismatchError("seen no rank's part, expected one of each rank")
    world, steps = parts[0].ranks, parts[0].steps
    for part in parts:
        if (part.ranks, part.steps) != (world, steps):
            raise MismatchError(
                f"rank {part.rank}: seen {part.steps} steps of {part.ranks} ranks, expected "
                f"{steps} of {world}, as rank {parts[0].rank} recorded"
            )
    counted = Counter(part.rank for part in parts)
    odd = [rank for rank, count in counted.items() if count > 1 or rank >= world]
    if odd:
        raise MismatchError(f"rank {odd[0]}: expected once each of {world} ranks")
    if missing := sorted({*range(world)} - counted.keys()):
        shown = ", ".join(map(str, missing[:SHOWN_MAX]))
        more = f" and {len(missing) - SHOWN_MAX} more" if len(missing) > SHOWN_MAX else ""
        raise MismatchError(f"nothing is there of rank {shown}{more}, of {world} ranks")


Group = tuple[int, ...]
Name = tuple[Operation, str, int]
"""Which calls are one: what was done, of which elements, and how many places further."""


def _collectives(parts: Sequence[Recorded]) -> Iterator[tuple[Group, dict[Name, Traffic]]]:
    """Each group with what its ranks called together: of those that differ the most."""
    found: dict[tuple[Run, ...], dict[Name, Traffic]] = defaultdict(dict)
    for part in parts:
        for calls in part.calls:
            if calls.to is None:
                name = (calls.operation, calls.element, 0)
                found[calls.group][name] = _most(found[calls.group].get(name), _traffic(calls))
    _demand_few(found, parts)
    for group, named in found.items():
        yield strides.unfolded(group), named


def _demand_few(groups: Iterable[tuple[Run, ...]], parts: Sequence[Recorded]) -> None:
    sizes = [sum(run.count for run in runs) for runs in groups]
    if len(sizes) > GROUPS_A_RANK * len(parts) or sum(sizes) > KINDS_A_RANK * len(parts):
        raise MismatchError(f"seen {len(sizes)} groups, expected fewer, of {len(parts)} ranks")


def _sends(parts: Sequence[Recorded]) -> Iterator[tuple[Group, dict[Name, Traffic]]]:
    """Group ranks that send to each other, whatever process group they use: the stages of a
    pipeline may use the group of all ranks."""
    senders: dict[tuple[Run, ...], list[tuple[int, int, Calls]]] = defaultdict(list)
    for part in parts:
        for calls in part.calls:
            if calls.to is not None:
                senders[calls.group].append((part.rank, calls.to, calls))
    _demand_few(senders, parts)
    for edges in senders.values():
        joined = _joined((source, target) for source, target, _ in edges)
        named: dict[Group, dict[Name, Traffic]] = defaultdict(dict)
        for source, target, calls in edges:
            group, place = joined[source]
            hop = joined[target][1] - place
            name = (calls.operation, calls.element, hop)
            traffic = replace(_traffic(calls), hop=hop)
            named[group][name] = _most(named[group].get(name), traffic)
        yield from named.items()


def _joined(pairs: Iterable[tuple[int, int]]) -> Mapping[int, tuple[Group, int]]:
    """For each rank, the connected component of its pairs, ascending, and its position there."""
    homes: dict[int, list[int]] = {}
    for pair in pairs:
        one, other = (homes.setdefault(each, [each]) for each in pair)
        if one is not other:
            less, more = sorted((one, other), key=len)
            more += less
            homes.update(dict.fromkeys(less, more))
    groups = {tuple(sorted(home)) for home in {id(home): home for home in homes.values()}.values()}
    return {rank: (group, place) for group in groups for place, rank in enumerate(group)}


def _kinds(groups: Sequence[tuple[Group, dict[Name, Traffic]]]) -> Iterator[Kind]:
    """Groups of one shape that call the same, together; the largest groups first."""
    equal_groups: dict[object, list[tuple[Group, dict[Name, Traffic]]]] = defaultdict(list)
    for group, named in groups:
        shape = tuple(rank - group[0] for rank in group)
        equal_groups[shape, frozenset(named)].append((group, named))
    for its in sorted(equal_groups.values(), key=lambda its: (-len(its[0][0]), its[0][0])):
        traffic = dict(its[0][1])
        for _, named in its[1:]:
            traffic = {name: _most(traffic[name], each) for name, each in named.items()}
        firsts = strides.folded(group[0] for group, _ in its)
        yield Kind(
            strides.folded(its[0][0]), firsts, tuple(traffic[name] for name in sorted(traffic))
        )


def _traffic(calls: Calls) -> Traffic:
    return Traffic(calls.operation, calls.element, calls.calls, calls.size, calls.seconds)


def _most(one: Traffic | None, other: Traffic) -> Traffic:
    """Merge calls of two ranks: the larger amounts, and the shorter wait."""
    if one is None:
        return other
    times = [each.seconds for each in (one, other) if each.seconds is not None]
    return replace(
        max(one, other, key=lambda each: (each.size, each.calls)),
        calls=max(one.calls, other.calls),
        seconds=min(times, default=None),
    )


def groups(kind: Kind) -> Iterator[Group]:
    """Each group of the kind, its ranks ascending."""
    members = sorted(strides.unfolded(kind.group))
    for first in sorted(strides.unfolded(kind.firsts)):
        yield tuple(rank - members[0] + first for rank in members)
