"""Whatever the mapper answers, no gang starts against its constraints, and no other job waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

from hypothesis import event, given, settings
from hypothesis import strategies as st

from fixtures import GPU
from fixtures.attempts import entry
from fixtures.examples import examples
from fixtures.jobs import job
from property.test_ranks_properties import LEVELS, worlds
from property.test_role_properties import check_topology
from railwright_mapper import messages
from railwright_mapper.messages import Reply
from railwright_operator.mapper_process import MapperError, MapperProcess
from railwright_scheduler import revalidation
from railwright_scheduler.attempt.ledger import EntryRole
from railwright_scheduler.mapping.gang_mapping import (
    MappingRequest,
    MappingResult,
    OrderResult,
    map_ranks,
)
from railwright_scheduler.model.decisions import Admit, Decisions
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.model.snapshot import Role, Snapshot, TierLimit, TopologyConstraints
from railwright_scheduler.placement import domains
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.mappings import Mappings, Outcome, RequestedMapping, Unmapped
from railwright_topology.relative_speed import EVEN, RelativeSpeed

NUMBERS = st.integers(-2, 9) | st.sampled_from([1 << 53, (1 << 53) + 1, 1 << 62])


@st.composite
def queues(draw: st.DrawFn) -> Snapshot:
    """A gang that is mapped, with constraints and sometimes another role, before two small jobs."""
    snapshot = draw(worlds())
    (first,) = snapshot.jobs
    (trains,) = first.roles
    size = draw(st.sampled_from([size for size in (1, 2, 3, 4) if trains.replicas % size == 0]))
    tier = TierLimit(draw(st.sampled_from(LEVELS)), size)
    nested = [TierLimit("rack", part) for part in (1, 2) if size % part == 0]
    constraints = TopologyConstraints(
        required=draw(st.sampled_from(("", "", "block"))),
        segments=draw(st.sampled_from([(), (tier,), *((part, tier) for part in nested)])),
        spreads=draw(st.sampled_from([(), (), (replace(tier, nodes=2 * size),)])),
    )
    roles = [replace(trains, constraints=constraints)]
    if draw(st.booleans()):
        shares = draw(st.booleans())
        held = constraints if shares else TopologyConstraints(required="rack")
        roles.append(Role(size, {GPU: 1}, "eval", constraints=held, shares_topology=shares))
    behind = [job(name, replicas=draw(st.integers(1, 2)), submitted_s=1) for name in "bc"]
    speeds = st.sampled_from([EVEN, EVEN, RelativeSpeed(0.5, 1.0, 1.0)])
    nodes = tuple(replace(each, relative_speed=draw(speeds)) for each in snapshot.nodes)
    return replace(snapshot, nodes=nodes, jobs=(replace(first, roles=tuple(roles)), *behind))


@st.composite
def wrong(draw: st.DrawFn, right: MappingResult) -> MappingResult:
    """Any answer of the mapper's form: orders of too few, foreign or two equal nodes, or of other
    segments; numbers of any size; choices that there are not."""
    order = draw(
        st.permutations(right.order.order)
        | st.lists(st.integers(-1, len(right.order.order)), max_size=len(right.order.order) + 1)
        | st.just(right.order.order)
    )
    found = replace(right.order, order=tuple(order))
    if draw(st.booleans()):
        found = draw(_mismeasured(found))
    return MappingResult(draw(st.just(right.choice) | st.integers(-1, 3)), found, is_cut=False)


@st.composite
def _mismeasured(draw: st.DrawFn, right: OrderResult) -> OrderResult:
    pairs = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple)
    steps = st.builds(PredictedStep, st.just(("DGX A100",)), *[NUMBERS] * 6)
    return replace(
        right,
        crossing=draw(st.just(right.crossing) | pairs),
        distance=draw(st.just(right.distance) | st.floats()),
        predicted=draw(st.just(right.predicted) | st.none() | steps),
    )


def receive(request: MappingRequest, answer: MappingResult) -> Outcome:
    """What the operator makes of this answer of a process."""

    async def map_once() -> Outcome:
        reader = asyncio.StreamReader()
        reader.feed_data(messages.encode_reply(Reply(1, answer)))
        writer = mock.create_autospec(asyncio.StreamWriter, instance=True)
        process = mock.create_autospec(asyncio.subprocess.Process, instance=True)
        try:
            return await MapperProcess(process, reader, writer).map_ranks(request) or Unmapped.LATE
        except MapperError as error:
            return error.outcome

    return asyncio.run(map_once())


def request(snapshot: Snapshot) -> RequestedMapping | None:
    mappings = Mappings({})
    decide(snapshot, mappings=mappings)
    return mappings.requested.get("a")


def follow(snapshot: Snapshot, requested: RequestedMapping, outcome: Outcome) -> Decisions:
    """The cycle in which the gang has this outcome."""
    return decide(snapshot, mappings=Mappings({"a": replace(requested, outcome=outcome)}))


def check_admitted(snapshot: Snapshot, admitted: Sequence[Admit]) -> None:
    """Each gang has its nodes as its constraints say, so that no commit of it is revoked."""
    by_name = {each.name: each for each in snapshot.nodes}
    finest = domains.finest_level(snapshot.nodes, len(LEVELS))
    jobs = {each.uid: each for each in snapshot.jobs}
    for admit in admitted:
        gang = jobs[admit.job_uid]
        for role, pods in zip(gang.roles, gang.pod_ranges, strict=True):
            assert len({*admit.nodes[pods]}) == role.replicas
        check_topology(gang, admit, by_name)
        spans = tuple(zip(LEVELS, admit.spans, strict=True))
        roles = tuple(EntryRole(each.name, each.replicas, each.per_pod) for each in gang.roles)
        planned = entry(nodes=admit.nodes, roles=roles, spans=spans)
        assert not revalidation.wider_spread(planned, by_name, LEVELS)
        assert not revalidation.broken_constraint(planned, gang, by_name, LEVELS, lambda: finest)


@settings(deadline=None, max_examples=examples(200))
@given(queues(), st.data())
def test_wrong_answer_breaks_no_constraint_and_delays_no_job(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """A refused answer starts the gang in the network's order; the others get what they get beside
    this order."""
    requested = request(snapshot)
    right = map_ranks(requested.request) if requested else None
    if requested is None or right is None:
        event("nothing to map")
        return
    outcome = receive(requested.request, data.draw(wrong(right)))
    decided = follow(snapshot, requested, outcome)
    check_admitted(snapshot, decided.admitted)
    first, *others = decided.admitted
    event(f"{outcome if isinstance(outcome, Unmapped) else 'used'}")
    assert first.job_uid == "a"
    assert first.score is not None
    beside: Outcome = Unmapped.FAILED
    if isinstance(outcome, MappingResult):
        in_order = replace(outcome.order, order=tuple(range(len(outcome.order.order))))
        beside = replace(outcome, order=in_order)
    else:
        assert outcome is Unmapped.FAILED
        (nodes, *_) = requested.gangs[0]
        assert (first.nodes[: len(nodes)], first.score.truncated) == (nodes, "MappingFailed")
    same = follow(snapshot, requested, beside)
    assert (others, decided.waiting) == ([*same.admitted[1:]], same.waiting)


@settings(deadline=None, max_examples=examples(250))
@given(queues())
def test_right_answers_are_used(snapshot: Snapshot) -> None:
    """The gang starts on the nodes that were chosen, in the order of its answer."""
    requested = request(snapshot)
    right = map_ranks(requested.request) if requested else None
    if requested is None or right is None:
        event("nothing to map")
        return
    assert receive(requested.request, right) == right
    decided = follow(snapshot, requested, right)
    check_admitted(snapshot, decided.admitted)
    (first, *_) = decided.admitted
    (nodes, *_) = requested.gangs[right.choice]
    assert first.job_uid == "a"
    assert first.score is not None
    assert first.score.truncated == (Unmapped.OVER_BUDGET.value if right.is_cut else "")
    assert first.nodes[: len(nodes)] == tuple(nodes[at] for at in right.order.order)
