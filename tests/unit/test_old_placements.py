"""Of the Placements of old attempts each job keeps the newest."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from railwright_kube import bodies, errors
from railwright_operator.watch.owned import PlacementRecord
from railwright_operator.write.old_placements import AT_ONCE_MAX, INTERVAL_S, KEPT, OldPlacements

FORBIDDEN = errors.ForbiddenError(403, "Forbidden", message="a webhook")


class Shell:
    """An API server with Placements, by UID; of which it may refuse some."""

    def __init__(self, *jobs: tuple[str, int]) -> None:
        self.now_s = 0.0
        self.refused: dict[str, errors.RequestFailed] = {}
        self.asked: list[str] = []
        self.there = {
            f"{job}-{attempt}": PlacementRecord(
                f"{job}-{attempt}", "team", f"{job}-{attempt}", 1, f"uid of {job}", (), ""
            )
            for job, last in jobs
            for attempt in range(last, 0, -1)
        }
        self.old = OldPlacements(
            cast(Any, self),
            placements=cast(Any, SimpleNamespace(records=self.there)),
            clock=lambda: self.now_s,
            rng=Random(0),
        )

    async def delete(self, path: str, body: object) -> None:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        assert path == f"/apis/railwright.dev/v1alpha1/namespaces/team/placements/{name}"
        assert body == bodies.deletion(name)
        if name in self.refused:
            raise self.refused[name]
        del self.there[name]

    def attempts(self, job: str) -> list[int]:
        """Of the Placements that are there."""
        numbers = (name.rpartition("-") for name in self.there)
        return sorted(int(number) for its, _, number in numbers if its == job)


async def test_each_job_keeps_its_newest_attempts() -> None:
    """By their numbers, whatever the names of jobs look like."""
    shell = Shell(("a", KEPT + 90), ("a-1", KEPT), ("b-2", KEPT + 1))
    await shell.old.delete()
    assert shell.attempts("a") == [*range(91, KEPT + 91)]
    assert shell.attempts("a-1") == [*range(1, KEPT + 1)]
    assert shell.attempts("b-2") == [*range(2, KEPT + 2)]
    asked = len(shell.asked)
    await shell.old.delete()
    assert len(shell.asked) == asked == 91


async def test_one_that_cannot_be_deleted_keeps_no_other() -> None:
    """It is tried again after a pause."""
    shell = Shell(("a", KEPT + 3))
    shell.refused["a-1"] = FORBIDDEN
    await shell.old.delete()
    assert shell.attempts("a") == [1, *range(4, KEPT + 4)]
    await shell.old.delete()
    assert shell.asked.count("a-1") == 1
    shell.now_s = 2 * INTERVAL_S
    shell.refused.clear()
    await shell.old.delete()
    assert shell.attempts("a") == [*range(4, KEPT + 4)]


async def test_without_an_api_server_nothing_else_is_tried() -> None:
    shell = Shell(("a", KEPT + 3))
    shell.refused |= dict.fromkeys(shell.there, errors.Unreachable("down"))
    await shell.old.delete()
    assert len(shell.asked) == 1


async def test_so_many_are_deleted_at_once() -> None:
    shell = Shell(("a", KEPT + AT_ONCE_MAX + 5))
    await shell.old.delete()
    assert len(shell.asked) == AT_ONCE_MAX
    await shell.old.delete()
    assert len(shell.attempts("a")) == KEPT
