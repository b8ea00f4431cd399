"""kopf's thread: the back-off before a restart, and its user name."""

from __future__ import annotations

import asyncio
import getpass
from random import Random
from typing import Any, NoReturn

import kopf
import pytest

from railwright_controllers import handlers
from railwright_controllers.handlers import KopfThread


def test_consecutive_failures_count_and_a_lasting_run_resets() -> None:
    """A run of kopf that lasted long resets the back-off."""
    assert handlers.failures_before(7, lived_s=1.0) == 7
    assert handlers.failures_before(7, lived_s=handlers.LASTED_S) == 0


async def test_kopf_runs_as_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user ID is in no file of its image."""
    begun: list[int] = []

    def nameless() -> NoReturn:
        raise KeyError("getpwuid(): uid not found: 65532")

    async def operator(**options: Any) -> None:
        tasks = await kopf.spawn_tasks(**options)
        begun.append(len(tasks))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.delenv("POD_ID", raising=False)
    monkeypatch.setattr(kopf, "operator", operator)
    thread = KopfThread(None, lambda *seen: None, clock=lambda: 0.0, rng=Random(0))
    await thread._operate()
    assert begun
    assert begun[0] > 0
