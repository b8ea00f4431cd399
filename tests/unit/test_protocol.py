"""Messages between launchers and the operator: valid ones, and refused ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from railwright import protocol

MEMBER = protocol.Member(job_uid="4c1e-77", attempt=2, node_rank=3)
BEAT = protocol.Heartbeat(
    member=MEMBER,
    sequence=7,
    running=1,
    exited=1,
    progress=protocol.Progress(
        step=40, total_steps=100, loss=1.25, phase=protocol.Phase.EVALUATING
    ),
    failure=protocol.Failure(rank=6, exit_code=137, signal="SIGKILL", last_lines="größer\n"),
    resumed_from=protocol.Checkpoint(attempt=1, step=30),
    skipped=("attempt-1/worker/step-40: no manifest",),
)
GO = protocol.Registered(
    order=protocol.Order.GO,
    world=protocol.WorldInfo(
        world_size=8,
        num_nodes=4,
        first_rank=6,
        master_address="10.0.0.7",
        master_port=20_001,
        group_rank=3,
        role_rank=2,
        role_size=4,
        group="worker",
        groups=(protocol.Group("worker", (protocol.Checkpoint(attempt=1, step=30),), "[::1]:7"),),
    ),
)


def beat_with(**fields: object) -> bytes:
    return json.dumps(json.loads(protocol.encode(BEAT)) | fields).encode()


@pytest.mark.parametrize(
    "message", [BEAT, GO, protocol.Commit(MEMBER, 5), protocol.CommitAnswer(True)]
)
def test_a_message_arrives_as_it_was_sent(message: object) -> None:
    assert protocol.decode(type(message), protocol.encode(message)) == message


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"sequence": -1}, "Heartbeat.sequence: seen -1, expected a whole number from 0"),
        ({"sequence": True}, "Heartbeat.sequence: seen True"),
        ({"sequence": 1.0}, "Heartbeat.sequence: seen 1.0"),
        ({"sequence": None}, "Heartbeat.sequence: seen None"),
        (
            {"member": {"job_uid": "a", "attempt": 0, "node_rank": 0}},
            "Heartbeat.member.attempt: seen 0",
        ),
        ({"member": {"job_uid": "a", "attempt": 1}}, "Heartbeat.member.node_rank: missing"),
        (
            {"member": {"job_uid": "a", "attempt": 1, "node_rank": 16_384}},
            "Heartbeat.member.node_rank: seen 16384",
        ),
        ({"member": []}, "Heartbeat.member: seen a list of 0, expected an object"),
        (
            {"progress": {"step": protocol.STEP_MAX + 1}},
            "Heartbeat.progress.step: seen 1000000000001",
        ),
        ({"progress": {"step": 1, "loss": "low"}}, "Heartbeat.progress.loss: seen 'low'"),
        ({"progress": {"step": 1, "loss": 10**301}}, "Heartbeat.progress.loss: seen 1000"),
        (
            {"progress": {"step": 1, "phase": 7}},
            "Heartbeat.progress.phase: seen 7, expected a string",
        ),
        (
            {"skipped": ["x"] * 9},
            "Heartbeat.skipped: seen a list of 9, expected a list of at most 8",
        ),
        ({"skipped": ["x" * 257]}, "Heartbeat.skipped[0]: seen 'xxx"),
        ({"skipped": ["\ud800"]}, "Heartbeat.skipped[0]: seen '\\ud800'"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_what_was_seen(
    fields: dict[str, object], complaint: str
) -> None:
    with pytest.raises(protocol.ProtocolError) as refused:
        protocol.decode(protocol.Heartbeat, beat_with(**fields))
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "expected JSON in UTF-8"),
        (b"\xff\xfe{\x00}\x00", "expected JSON in UTF-8"),
        (b"[]", "HeartbeatAnswer: seen a list of 0, expected an object"),
        (b'{"order":"stop","order":"continue"}', "'order': seen twice"),
        (b'{"order":NaN}', "seen NaN, expected a finite number"),
        (b'{"order":-Infinity}', "seen -Infinity"),
        (b'{"order":' + b"9" * 5_000 + b"}", "expected JSON in UTF-8: Exceeds the limit"),
        (b"[" * 8_000, "HeartbeatAnswer is nested deeper than 8"),
        (b'{"order":' + b'{"a":' * 9 + b"1" + b"}" * 10, "HeartbeatAnswer is nested deeper than 8"),
        (b" " * 16_385, "HeartbeatAnswer has 16385 bytes, at most 16384"),
    ],
)
def test_invalid_message_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(protocol.ProtocolError) as refused:
        protocol.decode(protocol.HeartbeatAnswer, text)
    assert complaint in str(refused.value)


def test_brackets_inside_a_string_are_not_depth() -> None:
    answer = protocol.HeartbeatAnswer(order=protocol.Order.STOP, reason='[[[[[[[[[["{{{{{\\')
    assert protocol.decode(protocol.HeartbeatAnswer, protocol.encode(answer)) == answer


def test_a_number_too_large_for_a_double_is_refused() -> None:
    text = b'{"step":1,"loss":1e400}'
    with pytest.raises(
        protocol.ProtocolError, match=r"Progress\.loss: seen inf, expected a finite"
    ):
        protocol.decode(protocol.Progress, text)


def test_a_loss_that_is_not_finite_cannot_be_sent() -> None:
    with pytest.raises(protocol.ProtocolError, match="Progress cannot be sent"):
        protocol.encode(protocol.Progress(step=1, loss=float("nan")))


def test_go_without_a_world_is_refused() -> None:
    with pytest.raises(protocol.ProtocolError, match=r"Registered\.world: seen null"):
        protocol.decode(protocol.Registered, b'{"order":"go"}')


def test_launcher_of_later_version_is_read() -> None:
    register = protocol.Register(MEMBER, "10.0.0.7", 20_001, num_processes=2, version=2)
    assert protocol.decode(protocol.Register, protocol.encode(register)) == register


def test_fields_of_later_version_are_skipped() -> None:
    progress = {"step": 40, "total_steps": 100, "loss": 1.25, "phase": "Evaluating", "lr": 0.1}
    member = {"job_uid": "4c1e-77", "attempt": 2, "node_rank": 3, "role": {"name": "worker"}}
    later = beat_with(progress=progress, member=member, behind=[1, 2], device={"a": [None]})
    assert protocol.decode(protocol.Heartbeat, later) == BEAT


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (
            protocol.HeartbeatAnswer,
            '{"order":"checkpoint"}',
            protocol.HeartbeatAnswer(protocol.Order.WAIT),
        ),
        (protocol.Registered, '{"order":"re-rank"}', protocol.Registered(protocol.Order.WAIT)),
        (
            protocol.Progress,
            '{"step":4,"phase":"Compiling"}',
            protocol.Progress(step=4, phase=protocol.Phase.EVALUATING),
        ),
    ],
)
def test_enum_value_of_later_version_is_neutral(kind: type, text: str, expected: object) -> None:
    assert protocol.decode(kind, text.encode()) == expected


def test_the_largest_messages_fit_into_what_a_receiver_reads() -> None:
    # Every character of last_lines and skipped may need a backslash, no more: see output.py.
    failure = protocol.Failure(rank=1, exit_code=1, last_lines='"' * protocol.LAST_LINES_BYTES_MAX)
    named = (protocol.RANKS_MAX - 1,) * protocol.RANKS_NAMED_MAX
    steps = protocol.Steps(
        newest=protocol.STEP_MAX,
        slowest=protocol.STEP_MAX,
        ranks=named,
        behind=64,
        reporting=64,
        still_s=1e300,
        lag_s=1e300,
        timed=protocol.STEP_MAX,
        p99_s=1e300,
        lag_p99_s=1e300,
        phase=protocol.Phase.CHECKPOINTING,
        finishing=False,
    )
    heartbeat = protocol.Heartbeat(
        *(MEMBER, 1, 0, 1),
        failure=failure,
        skipped=('"' * 256,) * 8,
        steps=steps,
    )
    assert protocol.decode(protocol.Heartbeat, protocol.encode(heartbeat)) == heartbeat
    stack = protocol.Stack(named, 64, answered=True, text='"' * protocol.STACK_BYTES_MAX)
    # A launcher that reports a failure brings no stacks.
    shown = replace(heartbeat, failure=None, stacks=(stack,) * protocol.STACKS_MAX)
    assert protocol.decode(protocol.Heartbeat, protocol.encode(shown)) == shown
    wait = protocol.Registered(
        protocol.Order.WAIT, missing=(protocol.NODES_MAX - 1,) * protocol.MISSING_MAX
    )
    assert protocol.decode(protocol.Registered, protocol.encode(wait)) == wait


def test_largest_world_fits_into_a_message() -> None:
    """Sixteen attempts of each of sixteen groups may be read."""
    resume = (protocol.Checkpoint(protocol.ATTEMPT_MAX, protocol.STEP_MAX),) * protocol.RESUME_MAX
    name, run = "g" * protocol.GROUP_BYTES_MAX, "r" * protocol.RUN_BYTES_MAX
    groups = (protocol.Group(name, resume, run),) * protocol.GROUPS_MAX
    world = protocol.WorldInfo(
        8, 4, 0, "::1", 2, 0, role_rank=0, role_size=8, group=name, groups=groups
    )
    go = protocol.Registered(protocol.Order.GO, world=world)
    assert protocol.decode(protocol.Registered, protocol.encode(go)) == go
