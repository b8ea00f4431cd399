"""Reading bodies with a bound: a reply is never larger in memory than we decided."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator

BODY_BYTES_MAX = 32 * 1024 * 1024
"""The API server accepts objects of up to 3 MiB. Lists are requested in pages that fit."""

LINE_BYTES_MAX = 16 * 1024 * 1024

Chunks = AsyncIterator[bytes]
"""A body as it arrives."""

DEPTH_MAX = 200
TOO_DEEP = b"railwright.dev: nested too deeply"
"""Replaces JSON below ``DEPTH_MAX``. The API server accepts 10,000 levels, decoders here about
1,000, encoders 254."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class BodyTooLargeError(Exception):
    """A body or a line exceeds its bound; the remainder was not read."""


async def bounded(body: Chunks, bytes_max: int) -> bytes:
    """The whole body; raises BodyTooLargeError as soon as it has more than ``bytes_max``."""
    chunks = bytearray()
    async for chunk in body:
        if len(chunks) + len(chunk) > bytes_max:
            raise BodyTooLargeError(f"body has more than {bytes_max} bytes")
        chunks += chunk
    return bytes(chunks)


async def split_lines(body: Chunks) -> AsyncGenerator[bytes, None]:
    """Lines without their end, as they come; a last line that was cut off is dropped."""
    pending = bytearray()
    async for chunk in body:
        pending += chunk
        if b"\n" not in chunk:
            if len(pending) > LINE_BYTES_MAX:
                raise BodyTooLargeError(f"line has more than {LINE_BYTES_MAX} bytes")
            continue
        *lines, rest = bytes(pending).split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            if line:
                yield line


def shallow(body: bytes) -> bytes:
    """The same JSON with ``TOO_DEEP`` in the place of what is nested too deeply. Slow."""
    pieces: list[bytes] = []
    depth = kept = 0
    for token in _TOKEN.finditer(body):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == DEPTH_MAX + 1:
                pieces += [body[kept : token.start()], b'"', TOO_DEEP, b'"']
        elif token[0] in (b"}", b"]"):
            if depth == DEPTH_MAX + 1:
                kept = token.end()
            depth -= 1
    return b"".join([*pieces, body[kept:]])
