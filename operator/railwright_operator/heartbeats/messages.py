"""Requests and answers of the server, whoever speaks: bounded bodies, tokens, refusals."""

from __future__ import annotations

import asyncio

import orjson
from aiohttp import web

from railwright_operator.heartbeats import refusals
from railwright_operator.heartbeats.refusals import RefusedError
from railwright_operator.kube.lines import TooLargeError, bounded

BODY_DEADLINE_S = 5.0
RETRY_AFTER_S = 1


async def body(request: web.Request, bytes_max: int) -> bytes:
    """The body, bounded in size and time; raises RefusedError."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise RefusedError(refusals.UNSUPPORTED, "Content-Encoding is not supported")
    if (request.content_length or 0) > bytes_max:
        raise RefusedError(
            refusals.TOO_LARGE, f"{request.content_length} bytes, expected at most {bytes_max}"
        )
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            return await bounded(request.content, bytes_max)
    except TimeoutError as error:
        reason = f"the body took longer than {BODY_DEADLINE_S} s"
        raise RefusedError(refusals.TOO_SLOW, reason) from error
    except TooLargeError as error:
        raise RefusedError(refusals.TOO_LARGE, str(error)) from error


def bearer_token(request: web.Request) -> str:
    """The token that a request carries; raises RefusedError."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise RefusedError(refusals.FORBIDDEN, "no bearer token")
    return token.strip()


def refusal(error: RefusedError) -> web.Response:
    """The answer to whoever is refused."""
    response = answer(error.status, orjson.dumps({"error": error.reason}))
    if error.status in (refusals.LATER, refusals.TOO_EARLY):
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    # Who reached a standby through a Service must get another chance to choose.
    if error.status in (refusals.LATER, refusals.TOO_SLOW, refusals.TOO_LARGE):
        response.force_close()
    return response


def answer(status: int, body: bytes) -> web.Response:
    """JSON."""
    return web.Response(status=status, body=body, content_type="application/json")
