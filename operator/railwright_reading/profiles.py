"""What a job was seen to send, as its ranks recorded it and as the scheduler computes with it."""

from __future__ import annotations

from railwright import profile as recorded
from railwright_scheduler.profile import CallRecord, GroupProfile, Operation, Profile


def profile(data: bytes, *, ranks_max: int = recorded.RANKS_MAX) -> Profile:
    """The same for the scheduler. Raises ValueError, with the field, for what is no profile or of
    more ranks."""
    said = recorded.profile(data)
    if said.ranks > ranks_max:
        raise ValueError(f"the profile is of {said.ranks} ranks, expected at most {ranks_max}")
    kinds = tuple(kind for kind in map(_kind, said.kinds) if kind.seen)
    return Profile(said.ranks, said.steps, kinds, said.devices)


def _kind(said: recorded.Kind) -> GroupProfile:
    seen = tuple(
        CallRecord(Operation(each.operation), each.element, each.calls, each.size, each.hop)
        for each in said.traffic
        if each.operation is not recorded.Operation.OTHER
    )
    return GroupProfile(tuple(recorded.groups(said)), seen)
