"""Messages between the operator and its mapper processes: JSON, one on each line."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import msgspec

from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult, NodeChoice
from railwright_scheduler.mapping.request import OrderRequest
from railwright_scheduler.model.profile import Profile

M = TypeVar("M")

READY = b"ready\n"
"""Sent by a mapper process once it reads requests."""

REPLY_BYTES_MAX = 1 << 20
"""The most of a reply that is read. One has some ten bytes for each node of a gang."""

FAILURE_MAX = 4_000
"""Characters of a failure: the end of its traceback."""


class InvalidMessageError(ValueError):
    """A line that is no message of this kind, with the reason."""


class RequestLine(msgspec.Struct, frozen=True):
    """A gang to map, under a number that its reply has too. Its profile can have half a million
    numbers, and its choices share it: so it is sent once, and ``profiled`` has whether each choice
    compares, and is mapped, with it."""

    number: int
    request: MappingRequest
    profiled: tuple[tuple[bool, bool], ...]
    profile: Profile | None = None


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result; without one, either the ``failure`` or too much work."""

    number: int = 0
    result: MappingResult | None = None
    failure: str = ""


def encode_request(number: int, request: MappingRequest) -> bytes:
    """The line that requests this mapping."""
    its = [order for each in request.choices for order in (each.compared, each.mapped)]
    profile = next((each.workload.profile for each in its if each.workload.profile), None)
    profiled = tuple(
        (each.compared.workload.profile is not None, each.mapped.workload.profile is not None)
        for each in request.choices
    )
    bare = _with_profiles(request, None, profiled)
    return msgspec.json.encode(RequestLine(number, bare, profiled, profile)) + b"\n"


def decode_request(line: bytes) -> tuple[int, MappingRequest]:
    """The request on this line, and its number. Raises InvalidMessageError."""
    message = _decode(line, RequestLine)
    if len(message.profiled) != len(message.request.choices):
        raise InvalidMessageError(f"{len(message.profiled)} entries of profiled, expected one each")
    request = _with_profiles(message.request, message.profile, message.profiled)
    return message.number, request


def encode_reply(reply: Reply) -> bytes:
    """The line that answers a request."""
    return msgspec.json.encode(reply) + b"\n"


def decode_reply(line: bytes) -> Reply:
    """The reply on this line. Raises InvalidMessageError."""
    return _decode(line, Reply)


def _decode(line: bytes, kind: type[M]) -> M:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessageError(
            f"{len(line)} bytes that are no {kind.__name__}: {error}"
        ) from error


def _with_profiles(
    request: MappingRequest, profile: Profile | None, profiled: tuple[tuple[bool, bool], ...]
) -> MappingRequest:
    """The same request with this profile wherever it is ``profiled``."""

    def profiled_order(order: OrderRequest, has_profile: bool) -> OrderRequest:
        held = profile if has_profile else None
        return replace(order, workload=replace(order.workload, profile=held))

    choices = tuple(
        NodeChoice(
            each.spans,
            profiled_order(each.compared, compared),
            profiled_order(each.mapped, mapped),
        )
        for each, (compared, mapped) in zip(request.choices, profiled, strict=True)
    )
    return replace(request, choices=choices)
