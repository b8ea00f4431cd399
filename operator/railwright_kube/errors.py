"""Failures of requests to the API server, by what the caller may conclude from them.

After ``NotLeader``, ``Unreachable``, ``AnswerTooLarge`` and the ``ApiError`` family a write did not
happen. After ``OutcomeUnknown`` it may have happened: the caller must read the object before it
does anything that must not happen twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


class RequestFailed(Exception):  # noqa: N818 - its subclasses are named after their meaning
    """A request without a usable answer."""


class NotLeader(RequestFailed):
    """A write was not sent: this process may not write now."""


class Unreachable(RequestFailed):
    """No answer, and no effect either: a read, or a write that was never sent."""


class AnswerTooLarge(RequestFailed):
    """The response to a read exceeds the bound; a retry would return the same."""


class OutcomeUnknown(RequestFailed):
    """A write was sent, and it is unknown whether it happened."""


class ApiError(RequestFailed):
    """The API server refused. The kinds below are those that callers or series distinguish."""

    def __init__(self, status: int, reason: str, *, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class BadRequestError(ApiError):
    """400: the body is no object of its kind."""


class UnauthorizedError(ApiError):
    """401: our credentials are not accepted, also after reading them again."""


class ForbiddenError(ApiError):
    """403: admission refused this object."""


class RightsError(ApiError):
    """403: our own role does not allow the request, or the server has not read it yet."""


class NotFoundError(ApiError):
    """404: no such object."""


class AlreadyExistsError(ApiError):
    """409 on create: the name is taken."""


class ConflictError(ApiError):
    """409: a precondition (resourceVersion, UID) does not hold."""


class GoneError(ApiError):
    """410: the requested version was compacted; a new list is needed."""


class InvalidError(ApiError):
    """422: the object breaks its schema or a rule."""


class TooManyRequestsError(ApiError):
    """429 until the deadline: the server limits the rate."""


_KINDS: Mapping[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


NAMES = tuple(
    kind.__name__ for parent in (RequestFailed, ApiError) for kind in parent.__subclasses__()
)
"""Those of the failures, as series spell them."""

_NO_RIGHT = re.compile(r'User "[^"]*" cannot ')
"""What authorization writes where admission writes its reason; their fields are the same."""


def from_status(status: int, answer: object, *, where: str) -> ApiError:
    """The error for an HTTP status and the decoded body, a Status object or anything else."""
    body = answer if isinstance(answer, dict) else {}
    reason = str(body.get("reason") or "Unknown")
    kind = _KINDS.get(status, ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExistsError
    elif status == 403 and _NO_RIGHT.search(str(body.get("message"))):
        kind = RightsError
    return kind(status, reason, message=f"{where}: {body.get('message') or 'no message'}")


def is_resumable(error: RequestFailed) -> bool:
    """Whether a watch may resume from the same version after this failure.

    Other answers than these may mean that the version itself is the problem: compacted, or from
    before the store was restored ("too large resource version"). An event that is too large would
    come again; a list goes on without it.
    """
    if isinstance(error, AnswerTooLarge):
        return False
    if isinstance(error, ApiError):
        return error.status in (401, 403, 429, 503)
    return True
