"""Who may read the metrics: what is asked of the API server, how often, and while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import jwt
import orjson
import pytest

from fixtures.tokens import SigningKey
from railwright_kube import errors, paths
from railwright_kube.access import (
    KEPT_MAX,
    KEPT_S,
    OF_ONE_MAX,
    OUTAGE_S,
    UNKNOWN_MAX,
    UNKNOWN_S,
    Access,
)
from railwright_kube.client import Api
from railwright_kube.signing_keys import PublishedKeys

KEY = SigningKey("k1")
READER: dict[str, Any] = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u1",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}
NOBODY = {"authenticated": False, "error": "invalid bearer token"}


class Reviews:
    """The API server: tokens with their users, and the users that may read metrics."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.users: dict[str, dict[str, Any]] = {"reader": READER, "other": {"username": "other"}}
        self.allowed = {READER["username"]}
        self.evaluation_error = ""
        self.failure: errors.RequestFailed | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[tuple[str, Any]] = []

    async def review(
        self, path: str, body: Any, *, deadline_s: float, decode: Callable[[bytes], Any]
    ) -> Any:
        self.asked.append((path, body["spec"]))
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        if path == paths.AUTHENTICATION_REVIEWS:
            user = self.users.get(body["spec"]["token"])
            status = NOBODY if user is None else {"authenticated": True, "user": user}
        else:
            assert path == paths.ACCESS_REVIEWS
            status = {"allowed": body["spec"]["user"] in self.allowed}
            status |= {"evaluationError": self.evaluation_error} if self.evaluation_error else {}
        return decode(orjson.dumps({"kind": "Review", "status": status}))

    @property
    def tokens(self) -> list[str]:
        """Those that were reviewed."""
        return [spec["token"] for path, spec in self.asked if path == paths.AUTHENTICATION_REVIEWS]


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
def readers(reviews: Reviews) -> Access:
    published = SimpleNamespace(find={KEY.key_id: jwt.PyJWK(KEY.public)}.get)
    keys = cast(PublishedKeys, published)
    return Access(cast(Api, reviews), keys=keys, clock=lambda: reviews.now_s)


async def test_right_is_that_of_the_account_of_the_token(reviews: Reviews, readers: Access) -> None:
    assert await readers.status("reader") == 200
    assert reviews.asked == [
        (paths.AUTHENTICATION_REVIEWS, {"token": "reader"}),
        (
            paths.ACCESS_REVIEWS,
            {
                "user": READER["username"],
                "uid": "u1",
                "groups": READER["groups"],
                "extra": READER["extra"],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            },
        ),
    ]
    assert await readers.status("other") == 403
    assert await readers.status("nobody") == 401


@pytest.mark.parametrize(("token", "status"), [("reader", 200), ("other", 403), ("nobody", 401)])
async def test_answer_is_used_for_its_time(
    reviews: Reviews, readers: Access, token: str, status: int
) -> None:
    for after_s in (0.0, KEPT_S - 1):
        reviews.now_s += after_s
        assert await readers.status(token) == status
    assert reviews.tokens == [token]
    reviews.users, reviews.allowed = {"reader": READER, "nobody": READER, "other": READER}, set()
    reviews.now_s += 1
    assert await readers.status(token) == 403
    assert reviews.tokens == [token] * 2


async def test_requests_with_one_token_share_a_review(reviews: Reviews, readers: Access) -> None:
    reviews.answers.clear()
    requests = [asyncio.create_task(readers.status("reader")) for _ in range(9)]
    await asyncio.sleep(0)
    requests[0].cancel()
    await asyncio.sleep(0)
    reviews.answers.set()
    assert await asyncio.gather(*requests[1:]) == [200] * 8
    assert reviews.tokens == ["reader"]


async def test_strangers_have_few_reviews(reviews: Reviews, readers: Access) -> None:
    """Whoever was allowed has theirs all the same."""
    assert await readers.status("reader") == 200
    reviews.now_s += KEPT_S
    found = [await readers.status(f"stranger-{number}") for number in range(2 * OF_ONE_MAX)]
    assert found == [401] * OF_ONE_MAX + [429] * OF_ONE_MAX
    assert await readers.status("reader") == 200
    assert reviews.tokens.count("reader") == 2
    reviews.now_s += UNKNOWN_S
    assert await readers.status("stranger") == 401


async def test_no_account_takes_the_reviews_of_another(reviews: Reviews, readers: Access) -> None:
    """Nor do forged tokens those of a Prometheus that has a new token."""
    renewed = KEY.token("", "api", service_account="prometheus")
    reviews.users[renewed] = READER
    forged = SigningKey(KEY.key_id)
    for number in range(2 * OF_ONE_MAX):
        await readers.status(forged.token("", "api", service_account="prometheus", iat=number))
        await readers.status(KEY.token("", "api", service_account="other", iat=number))
    assert len(reviews.tokens) == 2 * OF_ONE_MAX
    assert await readers.status(renewed) == 200


async def test_all_accounts_together_have_few_reviews(reviews: Reviews, readers: Access) -> None:
    tokens = [KEY.token("", "api", service_account=f"a{n}") for n in range(2 * UNKNOWN_MAX)]
    found = [await readers.status(token) for token in tokens]
    assert found == [401] * UNKNOWN_MAX + [429] * UNKNOWN_MAX


async def test_right_that_cannot_be_evaluated_is_no_refusal(
    reviews: Reviews, readers: Access
) -> None:
    assert await readers.status("reader") == 200
    reviews.now_s += KEPT_S
    reviews.allowed, reviews.evaluation_error = set(), "webhook authorizer: no answer"
    assert await readers.status("reader") == 200
    assert await readers.status("other") == 503


async def test_refused_tokens_displace_no_reader(reviews: Reviews, readers: Access) -> None:
    assert await readers.status("reader") == 200
    for number in range(2 * KEPT_MAX):
        reviews.now_s += KEPT_S / (4 * KEPT_MAX)
        readers._unknown.clear()
        await readers.status(f"stranger-{number}")
    assert (len(readers._allowed), len(readers._refused)) == (1, KEPT_MAX)
    assert await readers.status("reader") == 200
    assert reviews.tokens.count("reader") == 1


async def test_readers_in_memory_are_bounded(reviews: Reviews, readers: Access) -> None:
    for number in range(2 * KEPT_MAX):
        reviews.users[f"reader-{number}"] = READER
        readers._unknown.clear()
        assert await readers.status(f"reader-{number}") == 200
    assert len(readers._allowed) == KEPT_MAX


FAILURES = [
    errors.Unreachable("no answer"),
    errors.ApiError(500, "InternalError", message="etcd is away"),
    errors.TooManyRequestsError(429, "TooManyRequests", message="busy"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=str)
async def test_reader_stays_one_through_an_outage(
    reviews: Reviews, readers: Access, failure: errors.RequestFailed
) -> None:
    """The API server is asked again from time to time. No other becomes a reader."""
    began_s = reviews.now_s
    assert await readers.status("reader") == 200
    assert await readers.status("other") == 403
    reviews.failure = failure
    while (reviews.now_s - began_s) + 1 < OUTAGE_S:
        reviews.now_s += 1
        assert await readers.status("reader") == 200
    assert reviews.tokens.count("reader") == OUTAGE_S // KEPT_S
    assert await readers.status("other") == 503
    assert await readers.status("new") == 503
    reviews.now_s += 1
    assert await readers.status("reader") == 503
    reviews.failure = None
    assert await readers.status("reader") == 200


async def test_reader_without_the_right_ends_after_an_outage(
    reviews: Reviews, readers: Access
) -> None:
    assert await readers.status("reader") == 200
    reviews.failure = errors.Unreachable("no answer")
    reviews.now_s += KEPT_S
    assert await readers.status("reader") == 200
    reviews.failure, reviews.allowed = None, set()
    reviews.now_s += KEPT_S
    assert await readers.status("reader") == 403
    reviews.failure = errors.Unreachable("no answer")
    reviews.now_s += KEPT_S
    assert await readers.status("reader") == 503
