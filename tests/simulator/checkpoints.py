"""Checkpoints of the groups of ranks: which they asked to commit, and which they read.

A group saves a step by renaming its manifest once the operator has granted it. A checkpoint may be
torn: then the group reads the one before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from history.invariants import ViolationError
from railwright import protocol
from railwright_scheduler.attempt.ledger import AttemptKey

Saver = tuple[str, int, str]
"""The UID of a job, the attempt, and the group."""


class Checkpoints:
    """The checkpoints of one run. ``torn`` is the share of those found torn, ``late`` that of
    launchers that go on to commit after their attempt was revoked. ``counts`` says how often what
    happened."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._asked: dict[Saver, int] = {}
        self._recorded: dict[Saver, int] = {}
        self._saved: dict[Saver, list[int]] = {}
        self.torn = self.late = 0.0
        self.counts: Counter[str] = Counter()

    def ask(self, key: AttemptKey, group: str, step: int) -> None:
        """A group requests to commit this step."""
        self._asked[*key, group] = max(step, self._asked.get((*key, group), 0))

    def save(self, key: AttemptKey, group: str, step: int) -> None:
        """The commit of a group was granted: I26, its step was recorded while its attempt lived."""
        recorded = self._recorded.get((*key, group), -1)
        if recorded < step:
            raise ViolationError(f"I26: {group} of {key} saves {step}, recorded was {recorded}")
        self._saved.setdefault((*key, group), []).append(step)

    def read(
        self, key: AttemptKey, group: str, resume: Sequence[protocol.Checkpoint]
    ) -> protocol.Checkpoint | None:
        """The checkpoint that a group loads of those that it may; None for none. I26: it asked to
        commit each of them, in an earlier attempt."""
        for point in resume:
            asked = self._asked.get((key[0], point.attempt, group), -1)
            if point.attempt >= key[1] or point.step > asked:
                raise ViolationError(f"I26: {group} of {key} may read {point}, asked was {asked}")
        found = iter(resume) if not self.torn else self._sound(key[0], group, resume)
        newest = next(found, None)
        self.counts["group resumed"] += newest is not None
        return newest

    def is_late(self) -> bool:
        """Whether a launcher goes on to commit although its attempt was revoked."""
        return bool(self.late) and self._rng.random() < self.late

    def after_status(self, job: Mapping[str, Any]) -> None:
        """I26: no group has a point beyond what it asked to commit in that attempt."""
        uid, status = job["metadata"]["uid"], job.get("status") or {}
        for point in status.get("checkpoints", ()):
            saver = uid, point["attempt"], point["group"]
            asked, step = self._asked.get(saver, -1), point["step"]
            if step > asked:
                raise ViolationError(f"I26: {saver} has step {step} recorded, asked was {asked}")
            self._recorded[saver] = max(step, self._recorded.get(saver, 0))

    def _sound(
        self, job_uid: str, group: str, resume: Sequence[protocol.Checkpoint]
    ) -> Iterator[protocol.Checkpoint]:
        """The checkpoints that are saved up to these points, newest first, but for torn ones."""
        for point in resume:
            saved = self._saved.get((job_uid, point.attempt, group), ())
            for step in sorted({each for each in saved if each <= point.step}, reverse=True):
                if self._rng.random() < self.torn:
                    self.counts["checkpoint torn"] += 1
                else:
                    yield protocol.Checkpoint(point.attempt, step)
