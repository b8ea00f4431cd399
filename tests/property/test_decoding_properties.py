"""Messages are decoded fast to what ``protocol.decode`` gives, and refused where it refuses."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from railwright import protocol
from railwright_operator.heartbeats import decoding

decode = decoding.decoder(protocol.Heartbeat)

NUMBERS = st.integers(-2, 70_000) | st.integers(-(10**13), 10**13) | st.booleans() | st.none()
TEXTS = st.text(max_size=300) | st.just("é" * 200)
PROGRESS = st.fixed_dictionaries(
    {"step": NUMBERS},
    optional={
        "total_steps": NUMBERS,
        "loss": st.floats() | NUMBERS,
        "phase": st.sampled_from([*map(str, protocol.Phase), "Dancing"]),
    },
)
BEATS = st.fixed_dictionaries(
    {
        "member": st.fixed_dictionaries(
            {"job_uid": TEXTS, "attempt": NUMBERS, "node_rank": NUMBERS}
        ),
        "sequence": NUMBERS,
        "running": st.integers(-1, 66),
        "exited": st.integers(0, 64),
    },
    optional={
        "progress": PROGRESS | st.none(),
        "skipped": st.lists(TEXTS, max_size=10),
        "failure": st.fixed_dictionaries(
            {"rank": NUMBERS, "exit_code": st.integers(-1, 256)},
            optional={"last_lines": TEXTS},
        ),
        "master_address": TEXTS,
    },
)


def outcome(decoder: Any, data: bytes) -> object:
    """The message, or that it is refused and why."""
    try:
        return decoder(data)
    except protocol.ProtocolError as error:
        return str(error)


@given(stated=BEATS)
def test_decoder_agrees_with_wire(stated: dict[str, Any]) -> None:
    data = _json(stated)
    assert outcome(decode, data) == outcome(
        lambda data: protocol.decode(protocol.Heartbeat, data), data
    )


@given(data=st.binary(max_size=200))
def test_both_decoders_refuse_the_same_bytes(data: bytes) -> None:
    assert outcome(decode, data) == outcome(
        lambda data: protocol.decode(protocol.Heartbeat, data), data
    )


def test_deep_nesting_is_refused() -> None:
    depth = 5000
    data = b'{"member":{"job_uid":"u","attempt":1,"node_rank":0},"sequence":1,"running":1,'
    data += b'"exited":0,"later":' + b"[" * depth + b"]" * depth + b"}"
    assert outcome(decode, data) == outcome(
        lambda data: protocol.decode(protocol.Heartbeat, data), data
    )


def _json(stated: object) -> bytes:
    return json.dumps(stated, ensure_ascii=False).encode("utf-8", "surrogatepass")


def test_text_that_is_no_utf8_is_refused() -> None:
    data = b'{"member":{"job_uid":"\xff","attempt":1,"node_rank":0}}'
    assert outcome(decode, data) == outcome(
        lambda data: protocol.decode(protocol.Heartbeat, data), data
    )
