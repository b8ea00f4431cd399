"""Reading bodies with a bound: a reply is never larger in memory than we decided."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp

BODY_BYTES_MAX = 128 * 1024 * 1024
LINE_BYTES_MAX = 16 * 1024 * 1024


class TooLargeError(Exception):
    """A body or a line grew over its bound; the rest was not read."""


async def bounded(content: aiohttp.StreamReader, bytes_max: int) -> bytes:
    """The whole body; raises TooLargeError as soon as it has more than ``bytes_max``."""
    chunks = bytearray()
    async for chunk in content.iter_any():
        if len(chunks) + len(chunk) > bytes_max:
            raise TooLargeError(f"body has more than {bytes_max} bytes")
        chunks += chunk
    return bytes(chunks)


async def split_lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Lines without their end, as they come; a last line that was cut off is dropped."""
    pending = bytearray()
    async for chunk in content.iter_any():
        pending += chunk
        if b"\n" not in chunk:
            if len(pending) > LINE_BYTES_MAX:
                raise TooLargeError(f"line has more than {LINE_BYTES_MAX} bytes")
            continue
        *lines, rest = bytes(pending).split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            if line:
                yield line
