"""A reply is never larger in memory than we decided, however much the other side sends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from railwright_kube import body_limits
from railwright_kube.body_limits import BodyTooLargeError

MEBIBYTE = 2**20


class Endless:
    """A body of so many mebibytes without a line's end; counts how many were asked for."""

    def __init__(self, mebibytes: int) -> None:
        self.left, self.sent = mebibytes, 0

    async def chunks(self) -> AsyncIterator[bytes]:
        while self.left:
            self.left -= 1
            self.sent += 1
            yield b"x" * MEBIBYTE


async def test_a_body_is_given_up_at_its_bound() -> None:
    body = Endless(1024)
    with pytest.raises(BodyTooLargeError, match="more than 33554432 bytes"):
        await body_limits.bounded(body.chunks(), body_limits.BODY_BYTES_MAX)
    assert body.sent == body_limits.BODY_BYTES_MAX // MEBIBYTE + 1


async def test_a_watch_is_given_up_at_the_bound_of_a_line() -> None:
    body = Endless(1024)
    with pytest.raises(BodyTooLargeError, match="more than 16777216 bytes"):
        async for _ in body_limits.split_lines(body.chunks()):
            pass
    assert body.sent == body_limits.LINE_BYTES_MAX // MEBIBYTE + 1
