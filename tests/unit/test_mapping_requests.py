"""Mappings that plans request are computed in processes, and nobody waits for one that failed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.mapper_desk import DEADLINE_S, ENDS, HANGS, MISSING, NEVER_READY, Desk, answering
from railwright_kube.backoff import Backoff
from railwright_mapper import messages
from railwright_mapper.messages import Reply
from railwright_operator import mapper_process, mapping_requests
from railwright_operator.mapper_process import MapperProcess
from railwright_operator.mapping_requests import BACKOFF_S, PROCESSES
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.mapping.gang_mapping import MappingRequest
from railwright_scheduler.policy.mappings import RequestedMapping, Unmapped
from unit.test_mappings import gang, request, world


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, a mapping that does not hang is not late."""
    monkeypatch.setattr(mapper_process, "WAIT_S", DEADLINE_S / 2)


@pytest.fixture
def requested() -> RequestedMapping:
    return request(world(gang()))


@pytest.fixture
def poison(requested: RequestedMapping) -> RequestedMapping:
    """A request on which the mapper raises: it has no choice of nodes."""
    return replace(requested, request=replace(requested.request, choices=()))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping that hangs is late before long."""
    monkeypatch.setattr(mapper_process, "WAIT_S", 5.0)


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
        assert desk.registry.get_sample_value("railwright_mapping_seconds_count") == 1.0
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
    record = next(each for each in caplog.records if each.message == "mapper process replaced")
    assert record.__dict__["job_uid"] == "a"
    assert "IndexError" in record.__dict__["reason"]


async def test_too_much_work_is_an_outcome(requested: RequestedMapping) -> None:
    too_much = answering(Reply())
    desk = Desk(too_much, too_much)
    async with desk.running():
        assert (await desk.request(requested)).outcome is Unmapped.OVER_BUDGET
        assert desk.lost == 0.0


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
        assert (desk.counted("MappingFailed"), desk.lost) == (0, PROCESSES)


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
        await desk.until(lambda: desk.lost == outcomes.count(Unmapped.FAILED))


async def test_a_cycle_begins_when_a_mapping_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_requests, "WAIT_S", 0.1)
    desk = Desk()
    desk.mappings.update({"a": request(world(gang()))})
    async with asyncio.timeout(DEADLINE_S):
        await desk.woken.wait()
    assert desk.mappings.state()["a"].outcome is None


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The failures in a row before each start of a process that replaces one."""
    found = list[int]()

    def delay_s(backoff: Backoff, attempt: int, rng: object) -> float:
        found.append(attempt)
        return 0.0

    monkeypatch.setattr(Backoff, "delay_s", delay_s)
    return found


async def test_mapper_that_ran_long_restarts_at_once(tries: list[int]) -> None:
    """Its failures before are forgotten."""
    desk = Desk(*[NEVER_READY] * 6)
    async with desk.running():
        # Of two that are replaced beside each other, one may be faster.
        most = max(tries)
        assert most > 0
        assert sorted(tries) == sorted([*range(most + 1), *range(len(tries) - most - 1)])
        desk.now_s += BACKOFF_S.cap_s + 1.0
        os.kill(desk.processes[0].pid, signal.SIGKILL)
        await desk.until(lambda: len(desk.processes) == PROCESSES + 1)
        assert tries[-1] == 0
        os.kill(desk.processes[-1].pid, signal.SIGKILL)
        await desk.until(lambda: len(desk.processes) == PROCESSES + 2)
        assert tries[-1] == 1


async def test_failures_before_a_mapping_are_forgotten(
    requested: RequestedMapping,
    poison: RequestedMapping,
    tries: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mapping_requests, "PROCESSES", 1)
    desk = Desk()
    async with desk.running():
        for number in range(1, 4):
            desk.mappings.update({"poison": poison})
            await desk.outcome("poison")
            await desk.until(lambda n=number: desk.lost == n)  # type: ignore[misc]
            desk.mappings.update({})
            await desk.request(requested)
    assert tries == [0, 0, 0]


async def test_a_request_that_cannot_be_sent_ends_no_other(
    requested: RequestedMapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, encode = request(world(gang())), messages.encode_request

    def encoded(number: int, current: MappingRequest) -> bytes:
        return bytes(1 // 0) if current is other.request else encode(number, current)

    monkeypatch.setattr(messages, "encode_request", encoded)
    desk = Desk()
    async with desk.running():
        assert (await desk.request(other)).outcome is Unmapped.FAILED
        found = await desk.request(requested)
        assert found.outcome == gang_mapping.map_ranks(requested.request)


async def test_mapper_that_cannot_start_is_retried(requested: RequestedMapping) -> None:
    desk = Desk(MISSING, NEVER_READY, MISSING)
    async with desk.running():
        found = await desk.request(requested)
        assert found.outcome == gang_mapping.map_ranks(requested.request)
        assert desk.lost == 3.0


def environment_of(process: MapperProcess) -> bytes:
    return Path(f"/proc/{process.pid}/environ").read_bytes()


async def test_cancelled_at_any_moment_no_process_is_left() -> None:
    now_s = asyncio.get_running_loop().time
    for hundredths in range(60):
        until_s = now_s() + hundredths / 100
        desk = Desk(*[ENDS] * PROCESSES)
        task = asyncio.create_task(desk.mappings.run())
        desk.mappings.update({"a": request(world(gang()))})
        await desk.until(lambda until_s=until_s: now_s() >= until_s)  # type: ignore[misc]
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
