"""What kopf brings and what we list: nothing that went while nobody watched stays known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from railwright_api import names
from railwright_operator.kube.client import Api
from railwright_operator.watch import kinds
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.kinds import Kinds
from railwright_operator.watch.site import Site
from railwright_operator.write import pods

Raw = dict[str, Any]


def raw_job(uid: str, version: int) -> Raw:
    container = {"name": "train", "image": "image", "command": ["train"]}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "metadata": {
            "uid": uid,
            "namespace": "team",
            "name": uid,
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"numNodes": 1, "template": {"spec": {"containers": [container]}}},
    }


class Lists:
    """An API server that lists these jobs, as of one version, and no other objects."""

    def __init__(self, version: int, *jobs: Raw) -> None:
        self.version, self.jobs = version, jobs

    async def get(self, path: str, *, query: dict[str, str]) -> Raw:
        items = self.jobs if path.endswith(names.TRAINING_JOBS) else ()
        return {"items": items, "metadata": {"resourceVersion": str(self.version)}}


def known_to(lists: Lists, *, wake: Callable[[], None]) -> tuple[Kinds, Jobs]:
    launcher = pods.Launcher("launcher", "http://operator")
    jobs = Jobs(lambda raw: pods.sample(raw, launcher))
    return Kinds(cast(Api, lists), jobs=jobs, site=Site(), wake=wake, clock=time.monotonic), jobs


@pytest.mark.parametrize(("event", "left"), [("ADDED", ["a"]), ("DELETED", [])])
def test_news_of_a_job_is_taken_as_it_comes(event: str, left: list[str]) -> None:
    our, jobs = known_to(Lists(0), wake=lambda: None)
    our.seen(names.TRAINING_JOBS, raw_job("a", 1), None)
    our.seen(names.TRAINING_JOBS, raw_job("a", 2), event)
    assert [known.uid for known in jobs.all()] == left


async def test_a_list_of_kopfs_drops_a_job_that_went_while_nobody_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "RELISTED_S", 0.01)
    kept = raw_job("kept", 1)
    awake = asyncio.Event()
    our, jobs = known_to(Lists(10, kept), wake=awake.set)
    our.seen(names.TRAINING_JOBS, raw_job("gone", 2), "ADDED")
    running = asyncio.create_task(our.run())
    our.seen(names.TRAINING_JOBS, kept, None)
    async with asyncio.timeout(5):
        while [known.uid for known in jobs.all()] != ["kept"]:
            awake.clear()
            await awake.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
