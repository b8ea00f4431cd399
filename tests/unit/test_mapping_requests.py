"""Mappings that plans request are computed in processes, and nobody waits for one that failed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from railwright_kube import backoff
from railwright_mapper.messages import Reply
from railwright_operator import mapper_process, mapping_requests
from railwright_operator.mapper_process import COMMAND, MapperProcess
from railwright_operator.mapping_requests import BACKOFF_CAP_S, PROCESSES, MappingRequests
from railwright_operator.metrics import MappingMetrics
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.policy.mappings import RequestedMapping, Unmapped
from unit.test_mappings import gang, request, world

DEADLINE_S = 20.0


def process(then: str) -> Sequence[str]:
    """A process that says it is ready, and then does this."""
    return (
        sys.executable,
        "-c",
        f"import sys, time\nflush = sys.stdout.flush\nprint('ready')\nflush()\n{then}",
    )


def saying(line: bytes) -> Sequence[str]:
    """A process that says this to each request."""
    return process(
        f"for _ in sys.stdin.buffer: sys.stdout.buffer.write({line!r} + b'\\n'); flush()"
    )


def answering(reply: Reply, *, again: bool = False) -> Sequence[str]:
    """A process that answers each request with this; with ``again``, twice."""
    told = json.dumps(json.dumps(msgspec.to_builtins(reply)))
    return process(
        f"import json\nreply = json.loads({told})\n"
        "for number, _ in enumerate(sys.stdin, 1):\n"
        "    line = json.dumps(reply | {'number': number}) + '\\n'\n"
        f"    print(line * {1 + again}, end='', flush=True)"
    )


HANGS = process("time.sleep(1000)")
ENDS = process("sys.stdin.readline()")
BABBLES = process("while True: print('x' * 10_000, end='')")
NEVER_READY = ("echo", "hello")
MISSING = ("/no/such/program",)


class Desk:
    """The mappings of an operator, the time, and whether a cycle was woken.

    Its processes run these commands, one after the other, and then the mapper.
    """

    def __init__(self, *commands: Sequence[str]) -> None:
        self.now_s = 100.0
        self.woken = asyncio.Event()
        self.registry = CollectorRegistry()
        self.processes: list[MapperProcess] = []
        self._commands = list(commands)
        self.mappings = MappingRequests(
            metrics=MappingMetrics(self.registry),
            clock=lambda: self.now_s,
            wake=self.woken.set,
            rng=Random(0),
            start=self._start,
        )

    def _start(self, on_end: Callable[[], None]) -> AbstractAsyncContextManager[MapperProcess]:
        return self._started(on_end, self._commands.pop(0) if self._commands else COMMAND)

    @contextlib.asynccontextmanager
    async def _started(
        self, on_end: Callable[[], None], command: Sequence[str]
    ) -> AsyncIterator[MapperProcess]:
        async with mapper_process.started(on_end, command=command) as process:
            self.processes.append(process)
            yield process

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.mappings.run())
        await self.until(lambda: len(self.processes) >= PROCESSES)
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():  # noqa: ASYNC110 (of the state of processes)
                await asyncio.sleep(0.01)

    async def request(self, requested: RequestedMapping) -> RequestedMapping:
        """Request it, and wait for what becomes of it."""
        self.mappings.update({"a": requested})
        return await self.outcome("a")

    async def outcome(self, key: str) -> RequestedMapping:
        """Wait for what becomes of this request. A cycle is woken then."""
        async with asyncio.timeout(DEADLINE_S):
            while self.mappings.state()[key].outcome is None:
                self.woken.clear()
                await self.woken.wait()
        return self.mappings.state()[key]

    def counted(self, outcome: str) -> float | None:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("railwright_mappings_total", labels)

    @property
    def lost(self) -> float | None:
        return self.registry.get_sample_value("railwright_mapper_processes_lost_total")


@pytest.fixture
def requested() -> RequestedMapping:
    return request(world(gang()))


@pytest.fixture
def poison(requested: RequestedMapping) -> RequestedMapping:
    """A request on which the mapper raises: it has no choice of nodes."""
    return replace(requested, request=replace(requested.request, choices=()))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping is late before long."""
    monkeypatch.setattr(mapper_process, "WAIT_S", 0.5)


async def test_a_mapping_is_part_of_the_next_state_with_its_age(
    requested: RequestedMapping,
) -> None:
    desk = Desk()
    async with desk.running():
        found = await desk.request(requested)
        assert found.outcome == gang_mapping.map_ranks(requested.request)
        desk.now_s += 1.5
        assert desk.mappings.state()["a"].age_s == 1.5
        assert (desk.counted("Mapped"), desk.lost) == (1.0, 0.0)
        desk.mappings.update({})
        assert desk.mappings.state() == {}


async def test_another_request_of_the_job_is_as_old(requested: RequestedMapping) -> None:
    desk = Desk()
    async with desk.running():
        await desk.request(requested)
        desk.now_s += 1.0
        other = await desk.request(request(world(gang())))
        assert (other.request is requested.request, other.age_s) == (False, 1.0)


async def test_a_mapping_that_raises_has_failed_and_the_next_has_not(
    requested: RequestedMapping, poison: RequestedMapping, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    async with desk.running():
        for number in range(1, 5):
            assert (await desk.request(poison)).outcome is Unmapped.FAILED
            await desk.until(lambda n=number: desk.lost == n)  # type: ignore[misc]
            found = await desk.request(requested)
            assert found.outcome == gang_mapping.map_ranks(requested.request)
    assert (desk.counted("MappingFailed"), desk.counted("Mapped")) == (4.0, 4.0)
    record = next(each for each in caplog.records if each.message == "mapping failed")
    assert record.__dict__["job_uid"] == "a"
    record = next(each for each in caplog.records if each.message.endswith("is replaced"))
    assert "IndexError" in record.__dict__["reason"]


async def test_too_much_work_is_an_outcome(requested: RequestedMapping) -> None:
    too_much = answering(Reply())
    desk = Desk(too_much, too_much)
    async with desk.running():
        assert (await desk.request(requested)).outcome is Unmapped.OVER_BUDGET
        assert desk.lost == 0.0


def predicted(machines: tuple[str, ...], placed_us: int = 5) -> PredictedStep:
    return PredictedStep(machines, placed_us, 6, 7)


def ours(right: gang_mapping.MappingResult) -> tuple[str, ...]:
    """The machines of a right result."""
    assert right.order.predicted is not None
    return right.order.predicted.machines


@pytest.mark.parametrize("order", [(0,) * 8, tuple(range(1, 9)), tuple(range(7))])
async def test_an_order_that_is_none_has_failed(
    requested: RequestedMapping, order: tuple[int, ...]
) -> None:
    right = gang_mapping.map_ranks(requested.request)
    assert right is not None
    wrong = answering(Reply(result=replace(right, order=replace(right.order, order=order))))
    await fails_and_recovers(Desk(wrong, wrong), requested)


@pytest.mark.parametrize(
    "change",
    [
        lambda right: replace(right, choice=99),
        lambda right: replace(right, choice=-1),
        lambda right: replace(right, order=replace(right.order, crossing=())),
        lambda right: replace(right, order=replace(right.order, distance=-1.0)),
        lambda right: replace(right, order=replace(right.order, crossing=((-1, -5),))),
        lambda right: replace(right, order=replace(right.order, crossing=((1 << 54, 0),))),
        lambda right: replace(right, order=replace(right.order, predicted=predicted(("x" * 65,)))),
        lambda right: replace(right, order=replace(right.order, predicted=predicted(("x",) * 17))),
        lambda right: replace(
            right, order=replace(right.order, predicted=predicted(ours(right), 1 << 63))
        ),
        lambda right: replace(
            right, order=replace(right.order, predicted=predicted(ours(right), -1))
        ),
    ],
)
async def test_a_result_that_no_plan_can_use_has_failed(
    requested: RequestedMapping,
    change: Callable[[gang_mapping.MappingResult], gang_mapping.MappingResult],
) -> None:
    right = gang_mapping.map_ranks(requested.request)
    assert right is not None
    wrong = answering(Reply(result=change(right)))
    await fails_and_recovers(Desk(wrong, wrong), requested)


async def fails_and_recovers(desk: Desk, requested: RequestedMapping) -> None:
    """The first process, whichever it is, fails; another one takes its place."""
    async with desk.running():
        assert (await desk.request(requested)).outcome is Unmapped.FAILED
        await desk.until(lambda: desk.lost == 1.0)
        assert (await desk.request(request(world(gang())))).outcome is Unmapped.FAILED
        await desk.until(lambda: len(desk.processes) == 4)
        mapped = (await desk.request(request(world(gang())))).outcome
        assert mapped == gang_mapping.map_ranks(requested.request)


@pytest.mark.parametrize(
    "command",
    [
        ENDS,
        BABBLES,
        saying(b"no"),
        saying(b'{"result": 1}'),
        saying(b'{"x": ' + b"[" * 100_000),
        saying(b'{"failure": "\xff"}'),
        saying(b'{"number": 2}'),
    ],
    ids=["ends", "babbles", "words", "number", "nested", "no UTF-8", "of another request"],
)
async def test_a_process_that_does_not_answer_is_replaced(
    requested: RequestedMapping, command: Sequence[str]
) -> None:
    await fails_and_recovers(Desk(command, command), requested)


@pytest.mark.usefixtures("impatient")
async def test_others_are_mapped_beside_a_mapping_that_hangs(requested: RequestedMapping) -> None:
    desk = Desk(HANGS)
    async with desk.running():
        desk.mappings.update({key: request(world(gang())) for key in "abcdef"})
        outcomes = [(await desk.outcome(key)).outcome for key in "abcdef"]
        assert outcomes.count(Unmapped.LATE) == 1
        assert outcomes.count(gang_mapping.map_ranks(requested.request)) == 5
        await desk.until(lambda: len(desk.processes) == 3)
        assert desk.lost == 1.0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_an_idle_process_that_ends_costs_no_mapping(
    requested: RequestedMapping, number: int
) -> None:
    desk = Desk()
    async with desk.running():
        for process in list(desk.processes):
            os.kill(process.pid, number)
        await desk.until(lambda: len(desk.processes) == 2 * PROCESSES)
        found = await desk.request(requested)
        assert found.outcome == gang_mapping.map_ranks(requested.request)
        assert (desk.counted("MappingFailed"), desk.lost) == (None, PROCESSES)


async def test_a_process_that_gets_no_more_memory_is_replaced(
    requested: RequestedMapping,
) -> None:
    desk = Desk()
    async with desk.running():
        await desk.request(requested)
        for process in list(desk.processes):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (1 << 20, 512 << 20))
        desk.mappings.update({key: request(world(gang())) for key in "bcd"})
        outcomes = [(await desk.outcome(key)).outcome for key in "bcd"]
        assert outcomes.count(Unmapped.FAILED) >= 1


async def test_a_second_answer_to_one_request_is_none_to_the_next(
    requested: RequestedMapping,
) -> None:
    right = gang_mapping.map_ranks(requested.request)
    twice = answering(Reply(result=right), again=True)
    desk = Desk(twice, twice)
    async with desk.running():
        desk.mappings.update({key: request(world(gang())) for key in "abc"})
        outcomes = [(await desk.outcome(key)).outcome for key in "abc"]
        assert outcomes.count(Unmapped.FAILED) == 1
        assert outcomes.count(right) == 2


async def test_a_cycle_begins_when_a_mapping_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_requests, "WAIT_S", 0.1)
    desk = Desk()
    desk.mappings.update({"a": request(world(gang()))})
    async with asyncio.timeout(DEADLINE_S):
        await desk.woken.wait()
    assert desk.mappings.state()["a"].outcome is None


async def test_what_ran_for_long_is_started_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its failures before are forgotten."""
    tries = list[int]()

    def delay_s(attempt: int, **bounds: object) -> float:
        tries.append(attempt)
        return 0.0

    monkeypatch.setattr(backoff, "delay_s", delay_s)
    desk = Desk(*[NEVER_READY] * 6)
    async with desk.running():
        assert max(tries) == len(tries) // PROCESSES - 1 > 0
        desk.now_s += BACKOFF_CAP_S + 1.0
        os.kill(desk.processes[0].pid, signal.SIGKILL)
        await desk.until(lambda: len(desk.processes) == PROCESSES + 1)
        assert tries[-1] == 0
        os.kill(desk.processes[-1].pid, signal.SIGKILL)
        await desk.until(lambda: len(desk.processes) == PROCESSES + 2)
        assert tries[-1] == 1


async def test_what_cannot_be_started_is_tried_again(requested: RequestedMapping) -> None:
    desk = Desk(MISSING, NEVER_READY, MISSING)
    async with desk.running():
        found = await desk.request(requested)
        assert found.outcome == gang_mapping.map_ranks(requested.request)
        assert desk.lost == 3.0


def environment_of(process: MapperProcess) -> bytes:
    return Path(f"/proc/{process.pid}/environ").read_bytes()


async def test_cancelled_at_any_moment_no_process_is_left() -> None:
    for steps in range(60):
        desk = Desk(*[ENDS] * PROCESSES)
        task = asyncio.create_task(desk.mappings.run())
        desk.mappings.update({"a": request(world(gang()))})
        for _ in range(steps):
            await asyncio.sleep(0.01 if steps % 2 else 0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert all(process.has_ended for process in desk.processes)


async def test_processes_have_nothing_of_the_operators_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/secret")
    desk = Desk()
    async with desk.running():
        for process in desk.processes:
            assert environment_of(process) == b"OPENBLAS_NUM_THREADS=1\0"


async def test_processes_end_with_the_operator(requested: RequestedMapping) -> None:
    desk = Desk(HANGS)
    async with desk.running():
        desk.mappings.update({key: requested for key in "abc"})
        await asyncio.sleep(0)
    for process in desk.processes:
        assert process.has_ended
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


@pytest.mark.usefixtures("impatient")
async def test_a_request_that_is_over_is_not_begun() -> None:
    desk = Desk(HANGS, HANGS)
    requests = {key: request(world(gang())) for key in "abcd"}
    async with desk.running():
        desk.mappings.update(requests)
        await asyncio.sleep(0)
        desk.mappings.update({key: requests[key] for key in "abd"})
        assert (await desk.outcome("d")).outcome not in (None, Unmapped.LATE)
        late, mapped = desk.counted("MappingLate"), desk.counted("Mapped")
        assert (late, mapped) == (2.0, 1.0)
