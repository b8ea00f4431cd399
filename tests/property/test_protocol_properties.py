"""Whatever bytes arrive, a message is read or refused; whatever is sent arrives unchanged."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright import profile, protocol, strides

KINDS = (
    protocol.Register,
    protocol.Registered,
    protocol.Heartbeat,
    protocol.HeartbeatAnswer,
    protocol.Commit,
    protocol.CommitAnswer,
    protocol.Failure,
    profile.Handover,
    profile.Profile,
)
PARTS = (
    protocol.WorldInfo,
    protocol.Progress,
    protocol.Steps,
    protocol.Stack,
    profile.Recorded,
    profile.Calls,
    profile.Kind,
    profile.Traffic,
    strides.Run,
    strides.Stride,
)
FIELDS = sorted({name for kind in (*KINDS, *PARTS) for name in kind.__annotations__})
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
STEPS = st.integers(0, protocol.STEP_MAX)
RANKS = st.integers(0, protocol.RANKS_MAX - 1)
FINITE = st.none() | st.floats(-1e300, 1e300)
CHECKPOINTS = st.builds(protocol.Checkpoint, st.integers(1, protocol.ATTEMPT_MAX), STEPS)
MEMBERS = st.builds(
    protocol.Member,
    TEXT,
    st.integers(1, protocol.ATTEMPT_MAX),
    st.integers(0, protocol.NODES_MAX - 1),
)
PROGRESS = st.builds(
    protocol.Progress, STEPS, st.none() | STEPS, FINITE, FINITE, st.sampled_from(protocol.Phase)
)
FAILURES = st.builds(
    protocol.Failure, RANKS, st.integers(0, 255), st.none() | TEXT, st.none() | TEXT, TEXT
)
NAMED = st.lists(RANKS, max_size=protocol.RANKS_NAMED_MAX).map(tuple)
PROCESSES = st.integers(0, protocol.PROCESSES_MAX)
TIMES = st.floats(-1e300, 1e300)
STEPS_OF_RANKS = st.builds(
    protocol.Steps,
    *(STEPS, STEPS, NAMED, PROCESSES, PROCESSES, TIMES, TIMES, STEPS, TIMES, TIMES),
    st.sampled_from(protocol.Phase),
    st.booleans(),
)
STACKS = st.lists(
    st.builds(protocol.Stack, NAMED, PROCESSES, st.booleans(), TEXT), max_size=protocol.STACKS_MAX
).map(tuple)
BEATS = st.builds(
    protocol.Heartbeat,
    MEMBERS,
    STEPS,
    st.integers(0, protocol.PROCESSES_MAX),
    st.integers(0, protocol.PROCESSES_MAX),
    st.none() | PROGRESS,
    st.none() | FAILURES,
    st.none() | CHECKPOINTS,
    st.none() | CHECKPOINTS,
    st.lists(TEXT, max_size=protocol.SKIPPED_MAX).map(tuple),
    steps=st.none() | STEPS_OF_RANKS,
    stacks=st.none() | STACKS,
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable)
NEARLY = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
)


def is_read_or_refused(kind: type[object], data: bytes) -> None:
    try:
        message = protocol.decode(kind, data)
    except protocol.ProtocolError as error:
        refused = str(error)
    else:
        refused = ""
        assert protocol.decode(kind, protocol.encode(message)) == message
    assert len(refused) < 1_000


@given(BEATS)
def test_every_heartbeat_arrives_as_it_was_sent(heartbeat: protocol.Heartbeat) -> None:
    assert protocol.decode(protocol.Heartbeat, protocol.encode(heartbeat)) == heartbeat


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(kind: type[object], data: bytes) -> None:
    is_read_or_refused(kind, data)


@pytest.mark.parametrize("kind", KINDS)
@given(value=NEARLY)
def test_json_with_familiar_names_is_read_or_refused(kind: type[object], value: object) -> None:
    is_read_or_refused(kind, json.dumps(value).encode())


@given(BEATS, st.integers(0), st.binary(min_size=1, max_size=3))
def test_corrupted_heartbeat_is_read_or_refused(
    heartbeat: protocol.Heartbeat, place: int, patch: bytes
) -> None:
    data = bytearray(protocol.encode(heartbeat))
    place %= len(data)
    data[place : place + len(patch)] = patch
    is_read_or_refused(protocol.Heartbeat, bytes(data))
