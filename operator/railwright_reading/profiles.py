"""What a job was seen to send, as its ranks recorded it and as the scheduler computes with it."""

from __future__ import annotations

from railwright import profile as recorded
from railwright_scheduler.profile import Kind, Operation, Profile, Seen


def profile(data: bytes) -> Profile:
    """The same for the scheduler. Raises ValueError, with the field, for what is no profile."""
    said = recorded.profile(data)
    return Profile(said.ranks, said.steps, tuple(map(_kind, said.kinds)))


def _kind(said: recorded.Kind) -> Kind:
    seen = tuple(
        Seen(Operation(each.operation), each.element, each.calls, each.size, each.hop)
        for each in said.traffic
    )
    return Kind(tuple(recorded.groups(said)), seen)
