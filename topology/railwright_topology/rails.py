"""Decide which of a node's adapters are rails, and which belong to the front-end network.

Sources seldom declare it, so it is derived from their properties. Adapters are of one kind if they
have one link layer, speed and model, and are equally close to accelerators. The kind that most
accelerators have beside them, behind the same PCIe switches, is that of the rails; where PCI shows
no switches, the kind that is as many as the accelerators, or shared evenly by them, and faster than
all others. Beside rails, a kind is front-end if it is fewer and different: farther from
accelerators, slower, or of another layer. Everything else is undecided.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from railwright_topology.parts import AdapterRole, Distance, Kind, Layer, Pair, Part, pair
from railwright_topology.port_assignment import natural

BESIDE = Distance.SWITCHES
"""Up to here two parts reach each other without the processor."""

_Signature = tuple[Layer | None, int, str, bool | None]
"""Layer, speed, model, and whether it stands beside an accelerator."""
_Near = Mapping[str, tuple[tuple[str, ...], Distance | None]]
"""Of each adapter its nearest accelerators, and their distance."""


@dataclass(frozen=True, slots=True)
class PlacedAdapter:
    """``near`` are the accelerators that no other is nearer than, ``distance`` how near; ``why``
    is the reason of the role."""

    role: AdapterRole
    rail: int | None
    near: tuple[str, ...]
    distance: Distance | None
    why: str


def of(parts: Iterable[Part], distances: Mapping[Pair, Distance]) -> dict[str, PlacedAdapter]:
    """Each adapter's role and rail. Rails are numbered in the order of the adapters' names, or of
    their addresses, as people count. The same for any order of parts."""
    ordered = sorted(parts, key=_order)
    accelerators = [part.id for part in ordered if part.kind == Kind.ACCELERATOR]
    adapters = [part for part in ordered if part.kind == Kind.ADAPTER]
    near = {part.id: _nearest(part.id, accelerators, distances) for part in adapters}
    roles = _roles(adapters, near, accelerators)
    numbers = _numbers([part for part in adapters if roles[part.id][0] == AdapterRole.RAIL])
    return {
        part.id: PlacedAdapter(
            roles[part.id][0], numbers.get(part.id), *near[part.id], roles[part.id][1]
        )
        for part in adapters
    }


def _roles(
    adapters: Sequence[Part], near: _Near, accelerators: Sequence[str]
) -> dict[str, tuple[AdapterRole, str]]:
    """Each adapter's role, with the reason."""
    kinds = _kinds([part for part in adapters if part.role is None], near)
    declared = [part for part in adapters if part.role == AdapterRole.RAIL]
    rails, why = (declared, "") if declared else _rails(kinds, near, accelerators)
    roles = {part.id: (part.role, "it is declared") for part in adapters if part.role is not None}
    for kind in kinds:
        if kind is rails:
            verdict = AdapterRole.RAIL, why
        elif rails is None:
            verdict = AdapterRole.UNDECIDED, why
        else:
            verdict = _beside_rails(kind, rails, near)
        roles |= {part.id: verdict for part in kind}
    return roles


def _order(part: Part) -> tuple[object, ...]:
    """Adapters by their names, others by their addresses."""
    return natural(part.names[0]) if part.names else ((1 << 17, part.id),)


def _nearest(
    adapter: str, accelerators: Sequence[str], distances: Mapping[Pair, Distance]
) -> tuple[tuple[str, ...], Distance | None]:
    distance_of = {
        accelerator: distances[between]
        for accelerator in accelerators
        if (between := pair(adapter, accelerator)) in distances
    }
    least = min(distance_of.values(), default=None)
    # An accelerator of unknown distance may be nearer, unless these are beside the adapter.
    if least is None or (least > BESIDE and len(distance_of) < len(accelerators)):
        return (), None
    # At the largest distance to all, it is near none.
    if least == Distance.SYSTEM:
        return (), least
    return tuple(each for each, distance in distance_of.items() if distance == least), least


def _kinds(adapters: Sequence[Part], near: _Near) -> list[list[Part]]:
    """Group adapters by kind. One with unknown properties, such as the speed of a cable that is
    down, is of the only kind that fits."""
    found: dict[_Signature, list[Part]] = {}
    signed = [(_signature(part, near[part.id][1]), part) for part in adapters]
    for signature, part in sorted(signed, key=lambda each: _unknown(each[0])):
        fitting = [kind for kind in found if _fits(signature, kind)]
        chosen = fitting[0] if len(fitting) == 1 else signature
        found.setdefault(chosen, []).append(part)
    return [*found.values()]


def _signature(part: Part, distance: Distance | None) -> _Signature:
    beside = distance <= BESIDE if distance is not None else None
    return part.layer, part.bytes_per_s, part.model, beside


def _unknown(signature: _Signature) -> int:
    return sum(value in (None, 0, "") and value is not False for value in signature)


def _fits(one: _Signature, other: _Signature) -> bool:
    return all(
        mine == its or (mine in (None, 0, "") and mine is not False)
        for mine, its in zip(one, other, strict=True)
    )


def _rails(
    kinds: Sequence[list[Part]], near: _Near, accelerators: Sequence[str]
) -> tuple[list[Part] | None, str]:
    """The kind that is that of the rails, and why it is; or why none is."""
    serving = [kind for kind in kinds if 2 * len(_served(kind, near)) > len(accelerators)]
    if serving:
        found = _fastest_kind(serving)
        if found is None:
            return None, "several kinds stand beside accelerators, and none is the fastest"
        shares = collections.Counter(_served(found, near).values())
        usual = max(shares, key=lambda share: (shares[share], share))
        if (most := max(shares)) > usual:
            return None, f"{most} of its kind stand beside one accelerator, {usual} beside most"
        of_all = f"{len(_served(found, near))} of {len(accelerators)} accelerators"
        return found, f"{of_all} have one beside them"
    found = _fastest_kind(kinds)
    if found is None or len(kinds) < 2 or len(found) < 2 or not accelerators:
        return None, "no kind of adapter stands out as that of the accelerators"
    if any(near[part.id][1] == Distance.SYSTEM for part in found):
        return None, "the fastest kind is near no accelerator"
    if len(accelerators) % len(found) and len(found) % len(accelerators):
        return None, f"{len(found)} adapters are not shared evenly by {len(accelerators)}"
    count = f"{len(found)} equal ones for {len(accelerators)} accelerators"
    return found, f"{count}, and faster than all others"


def _served(kind: Iterable[Part], near: _Near) -> collections.Counter[str]:
    """The accelerators that have one of a kind beside them, and how many."""
    return collections.Counter(
        accelerator
        for part in kind
        for accelerator in near[part.id][0]
        if (near[part.id][1] or Distance.SYSTEM) <= BESIDE
    )


def _fastest_kind(kinds: Sequence[list[Part]]) -> list[Part] | None:
    """The one kind that is faster than all others; a single kind in any case."""
    if len(kinds) == 1:
        return kinds[0]
    speeds = sorted((_speed(kind), at) for at, kind in enumerate(kinds))
    if not speeds or not speeds[0][0] or speeds[-1][0] == speeds[-2][0]:
        return None
    return kinds[speeds[-1][1]]


def _speed(kind: Iterable[Part]) -> int:
    return max(part.bytes_per_s for part in kind)


def _beside_rails(
    kind: Sequence[Part], rails: Sequence[Part], near: _Near
) -> tuple[AdapterRole, str]:
    differences = [*_differences(kind, rails, near)]
    if differences and len(kind) < len(rails):
        count = f"{len(kind)} of its kind beside {len(rails)} rails"
        return AdapterRole.FRONT_END, f"{count}: {', '.join(differences)}"
    if differences:
        return AdapterRole.UNDECIDED, f"{', '.join(differences)}, but no fewer than the rails"
    return AdapterRole.UNDECIDED, "only its model differs from that of the rails"


def _differences(kind: Sequence[Part], rails: Sequence[Part], near: _Near) -> Iterator[str]:
    one, other = kind[0], rails[0]
    distances = near[one.id][1], near[other.id][1]
    if None not in distances and (distances[0] or 0) > BESIDE >= (distances[1] or 0):
        yield "beside no accelerator"
    if 0 < _speed(kind) < _speed(rails):
        yield "slower"
    if one.layer is not None and other.layer is not None and one.layer != other.layer:
        yield f"{one.layer} and not {other.layer}"


def _numbers(rails: Sequence[Part]) -> dict[str, int]:
    """Declared numbers if all rails have one; otherwise numbers in their order."""
    if rails and all(part.rail is not None for part in rails):
        return {part.id: part.rail for part in rails if part.rail is not None}
    return {part.id: at for at, part in enumerate(rails)}
