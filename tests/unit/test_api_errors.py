"""What an HTTP error of the API server is taken for."""

from __future__ import annotations

import pytest

from railwright_kube import errors

NO_RIGHT = 'pods is forbidden: User "a" cannot create resource "pods" in API group ""'


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind"),
    [
        (403, "Forbidden", NO_RIGHT, errors.RightsError),
        (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q', errors.ForbiddenError),
        (403, "Forbidden", 'violates PodSecurity "restricted:latest"', errors.ForbiddenError),
        (409, "AlreadyExists", "taken", errors.AlreadyExistsError),
        (409, "Conflict", "the UID is another", errors.ConflictError),
        (410, "Expired", "too old", errors.GoneError),
        (418, "Teapot", "short and stout", errors.ApiError),
    ],
)
def test_the_kind_follows_from_status_reason_and_message(
    status: int, reason: str, message: str, kind: type[errors.ApiError]
) -> None:
    error = errors.from_status(status, {"reason": reason, "message": message}, where="create x")
    assert type(error) is kind
    assert str(error) == f"{status} {reason}: create x: {message}"


@pytest.mark.parametrize("answer", [None, "gateway", ["x"], {"details": "none"}])
def test_an_answer_that_is_no_status_object_is_still_an_error(answer: object) -> None:
    error = errors.from_status(502, answer, where="get x")
    assert (type(error), error.reason) == (errors.ApiError, "Unknown")
