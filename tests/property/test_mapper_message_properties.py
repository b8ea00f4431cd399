"""A request and its result are the same values on both sides of the mapper's pipe."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from property.test_mapping_requests_properties import queues
from property.test_ranks_properties import worlds
from railwright_mapper import messages
from railwright_mapper.messages import Reply
from railwright_scheduler.mapping.gang_mapping import MappingRequest, fits, map_ranks
from railwright_scheduler.mapping.request import OrderRequest
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.mappings import Mappings


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    ranks = draw(st.integers(1, 32))
    calls = st.builds(
        CallRecord,
        st.sampled_from(Operation),
        st.sampled_from(["float32", "bf16"]),
        st.integers(1, 1 << 40),
        st.integers(1, 1 << 60),
        st.integers(-ranks, ranks),
    )
    groups = st.lists(st.integers(0, ranks - 1), min_size=1, max_size=ranks).map(tuple)
    kinds = st.builds(
        GroupProfile,
        st.lists(groups, max_size=3).map(tuple),
        st.lists(calls, max_size=3).map(tuple),
    )
    devices = st.lists(st.text(max_size=8), max_size=2).map(tuple)
    return Profile(ranks, 3, tuple(draw(st.lists(kinds, max_size=3))), draw(devices))


@st.composite
def requests(draw: st.DrawFn) -> list[MappingRequest]:
    """What a decision requests; some of the choices of each request have its profile."""
    mappings = Mappings({})
    decide(draw(st.one_of(worlds(), queues())), mappings=mappings)
    profile, had = draw(profiles()), st.booleans()

    def drawn(order: OrderRequest) -> OrderRequest:
        held = profile if draw(had) else None
        return replace(order, workload=replace(order.workload, profile=held))

    return [
        replace(
            each.request,
            choices=tuple(
                replace(choice, compared=drawn(choice.compared), mapped=drawn(choice.mapped))
                for choice in each.request.choices
            ),
        )
        for each in mappings.requested.values()
    ]


@given(requests())
def test_a_request_is_read_as_it_was_written(requested: list[MappingRequest]) -> None:
    for request in requested:
        line = messages.encode_request(3, request)
        number, found = messages.decode_request(line)
        assert (number, line.count(b"\n")) == (3, 1)
        # Profiles are compared by their digests, which follow from all that they have.
        assert repr(found) == repr(request)


@given(st.one_of(worlds(), queues()))
def test_a_result_fits_and_is_read_as_it_was_written(snapshot: Snapshot) -> None:
    mappings = Mappings({})
    decide(snapshot, mappings=mappings)
    for each in mappings.requested.values():
        found = map_ranks(each.request)
        reply = Reply(3, found)
        assert repr(messages.decode_reply(messages.encode_reply(reply))) == repr(reply)
        assert found is None or fits(each.request, found)
