"""Whatever a process of the mapper answers, it costs one mapping and the process at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fixtures.mapper_desk import BABBLES, DEADLINE_S, ENDS, Desk, answering, saying
from railwright_mapper.messages import Reply
from railwright_operator import mapper_process
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.model.snapshot import TierLimit, TopologyConstraints
from railwright_scheduler.policy.mappings import RequestedMapping, Unmapped
from railwright_topology.relative_speed import RelativeSpeed
from unit.test_mappings import gang, request, world

FOUR_A_RACK = TopologyConstraints(segments=(TierLimit("rack", 4),))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, a mapping that does not hang is not late."""
    monkeypatch.setattr(mapper_process, "WAIT_S", DEADLINE_S / 2)


@pytest.fixture
def requested() -> RequestedMapping:
    return request(world(gang()))


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
        lambda right: replace(right, order=replace(right.order, predicted=None)),
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


async def test_an_order_that_breaks_a_segment_has_failed() -> None:
    """Ranks 0 and 4 change places across racks. A plan that admitted it would be revoked."""
    in_segments = request(world(gang(constraints=FOUR_A_RACK)))
    right = gang_mapping.map_ranks(in_segments.request)
    assert right is not None
    order = [*right.order.order]
    order[0], order[4] = order[4], order[0]
    wrong = answering(Reply(result=replace(right, order=replace(right.order, order=(*order,)))))
    desk = Desk(wrong, wrong)
    async with desk.running():
        assert (await desk.request(in_segments)).outcome is Unmapped.FAILED
        await desk.until(lambda: desk.lost == 1.0)


def test_nodes_of_two_speeds_are_mapped() -> None:
    """The machines of a prediction are those of its nodes, however fast each of these is."""
    snapshot = world(gang(), racks=2)
    slow, *others = snapshot.nodes
    slow = replace(slow, relative_speed=RelativeSpeed(0.7, 1.0, 1.0))
    its = request(replace(snapshot, nodes=(slow, *others))).request
    right = gang_mapping.map_ranks(its)
    assert right is not None
    assert gang_mapping.fits(its, right)


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
