"""The profile of a job, from the document of its ranks to the scheduler's value."""

from __future__ import annotations

from railwright import profile as recorded
from railwright.protocol import ProtocolError
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile


def profile(data: bytes, *, ranks_max: int = recorded.RANKS_MAX) -> Profile:
    """Convert a profile's document. Raises ValueError, with the field, if it is malformed or has
    more ranks."""
    try:
        document = recorded.profile(data)
    except ProtocolError as error:
        raise ValueError(f"no profile as `railwright profile` prints it: {error}") from error
    if document.ranks > ranks_max:
        raise ValueError(f"the profile is of {document.ranks} ranks, expected at most {ranks_max}")
    kinds = tuple(kind for kind in map(_kind, document.kinds) if kind.seen)
    return Profile(document.ranks, document.steps, kinds, document.devices)


def _kind(kind: recorded.Kind) -> GroupProfile:
    seen = tuple(
        CallRecord(Operation(each.operation), each.element, each.calls, each.size, each.hop)
        for each in kind.traffic
        if each.operation is not recorded.Operation.OTHER
    )
    return GroupProfile(tuple(recorded.groups(kind)), seen)
