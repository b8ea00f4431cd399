"""Work on thousands of things never keeps the event loop longer than a slice and one thing."""

from __future__ import annotations

import asyncio

from railwright_kube.yielding import SLICE_S, TimeSlice

STEP_S = SLICE_S / 4


class Shared:
    """A loop whose clock only work advances, and the longest wait of another task."""

    def __init__(self) -> None:
        self.now_s = self.seen_s = self.waited_s = 0.0

    async def somebody_else(self) -> None:
        while True:
            self.waited_s = max(self.waited_s, self.now_s - self.seen_s)
            self.seen_s = self.now_s
            await asyncio.sleep(0)

    async def work(self, steps: int) -> None:
        time_slice = TimeSlice(lambda: self.now_s)
        for _ in range(steps):
            if time_slice.is_over:
                await time_slice.yield_to_others()
            self.now_s += STEP_S


async def test_others_wait_no_longer_than_a_slice_and_a_step() -> None:
    loop = Shared()
    other = asyncio.create_task(loop.somebody_else())
    await asyncio.sleep(0)
    await loop.work(1_000)
    await asyncio.sleep(0)
    other.cancel()
    assert SLICE_S <= loop.waited_s <= SLICE_S + STEP_S


async def test_two_busy_tasks_delay_others_by_both_time_slices() -> None:
    """The delay of a third task is at most the sum of both slices."""
    loop = Shared()
    other = asyncio.create_task(loop.somebody_else())
    await asyncio.sleep(0)
    await asyncio.gather(loop.work(1_000), loop.work(1_000))
    await asyncio.sleep(0)
    other.cancel()
    assert SLICE_S < loop.waited_s <= 2 * (SLICE_S + STEP_S)


async def test_work_within_a_slice_does_not_yield() -> None:
    loop = Shared()
    other = asyncio.create_task(loop.somebody_else())
    await asyncio.sleep(0)
    await loop.work(4)
    assert loop.seen_s == 0.0
    other.cancel()
