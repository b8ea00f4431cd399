"""What is known about a reason why a job waits, beside its numbers and its sentence."""

from __future__ import annotations

from typing import ClassVar


class WaitingReason:
    """``advice``: what the user does about it, as in docs/glossary.md. ``unschedulable``: the job
    cannot get nodes as it is, so it has no position in its queue. ``held``: it is kept out of the
    queue."""

    __slots__ = ()
    advice: ClassVar[str]
    unschedulable: ClassVar[bool] = False
    held: ClassVar[bool] = False
