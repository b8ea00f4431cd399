"""Who may read the metrics: the API server reviews each bearer token, and then the right to
``GET /metrics`` of its account.

An answer is used for ``KEPT_S``. While the API server gives none, whoever was allowed before stays
so for ``OUTAGE_S``: metrics are needed then, and a kubelet cannot renew the token of a Prometheus.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

import msgspec

from railwright_kube import paths
from railwright_kube.client import Api
from railwright_kube.errors import RequestFailed, Unreachable
from railwright_kube.signing_keys import PublishedKeys
from railwright_kube.tokens import subject

logger = logging.getLogger(__name__)

PATH = "/metrics"

KEPT_S = 60.0
OUTAGE_S = 900.0
REVIEW_S = 4.0
"""Of each of the two reviews: a Prometheus waits ten seconds for its metrics by default."""

KEPT_MAX = 64
"""Allowed tokens, and as many refused ones: these displace none that is allowed."""

UNKNOWN_MAX, UNKNOWN_S = 16, 10.0
"""So many tokens that are not known as allowed are reviewed in this time, whoever sends them: the
load that unauthorized clients can put on the API server. It is longer than two reviews, so it
bounds those in flight too."""

OF_ONE_MAX = 4
"""So many of these are of one service account, or of none. A Prometheus has another token every
hour, and is not known after a restart of this process: no other account takes its place."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Authentication(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _Authentication


class _Authorization(msgspec.Struct):
    allowed: bool
    error: str = msgspec.field(default="", name="evaluationError")


class _AccessReview(msgspec.Struct):
    status: _Authorization


_read_token_review = msgspec.json.Decoder(_TokenReview).decode
_read_access_review = msgspec.json.Decoder(_AccessReview).decode


@dataclass(slots=True)
class _Decision:
    """The decision of the API server, its time, and until when it is used."""

    status: HTTPStatus
    answered_s: float
    until_s: float


@dataclass(eq=False, repr=False)
class Access:
    """The answers of the API server by the digest of the token. ``keys`` are those of service
    accounts. ``clock`` is monotonic seconds."""

    api: Api
    _: KW_ONLY
    keys: PublishedKeys
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._allowed: OrderedDict[bytes, _Decision] = OrderedDict()
        self._refused: OrderedDict[bytes, _Decision] = OrderedDict()
        self._in_flight: dict[bytes, asyncio.Task[HTTPStatus]] = {}
        self._unknown: deque[tuple[float, str]] = deque()
        """When the last reviews of unknown tokens began, and whose tokens these were."""
        self._failing = False

    async def status(self, token: str) -> HTTPStatus:
        """What a request with this token, in ASCII, is answered with: 200 if its account may read
        the metrics, 403 if it may not, and 401 if it is no valid token. Not known are 429, with too
        many unknown tokens, and 503, without an answer of the API server."""
        digest = hashlib.sha256(token.encode("ascii")).digest()
        allowed, now_s = self._allowed.get(digest), self.clock()
        answer = allowed or self._refused.get(digest)
        if answer is not None and now_s < answer.until_s:
            return answer.status
        review = self._in_flight.get(digest)
        if review is None:
            if allowed is None and not self._may_review_unknown(token, now_s):
                return HTTPStatus.TOO_MANY_REQUESTS
            review = asyncio.create_task(self._review(token, digest))
            self._in_flight[digest] = review
            review.add_done_callback(lambda _: self._in_flight.pop(digest))
        # The request of one connection may end while others wait for the same answer.
        return await asyncio.shield(review)

    def _may_review_unknown(self, token: str, now_s: float) -> bool:
        unknown = self._unknown
        while unknown and now_s - unknown[0][0] >= UNKNOWN_S:
            unknown.popleft()
        if len(unknown) >= UNKNOWN_MAX:
            return False
        sender = subject(self.keys, token)
        if sum(each == sender for _, each in unknown) >= OF_ONE_MAX:
            return False
        unknown.append((now_s, sender))
        return True

    async def _review(self, token: str, digest: bytes) -> HTTPStatus:
        try:
            status = await self._decide(token)
        except RequestFailed as error:
            self._note(failed=error)
            return self._without_answer(digest)
        self._note(failed=None)
        now_s = self.clock()
        self._allowed.pop(digest, None)
        self._refused.pop(digest, None)
        kept = self._allowed if status == HTTPStatus.OK else self._refused
        kept[digest] = _Decision(status, now_s, now_s + KEPT_S)
        if len(kept) > KEPT_MAX:
            kept.popitem(last=False)
        return status

    def _without_answer(self, digest: bytes) -> HTTPStatus:
        now_s, before = self.clock(), self._allowed.get(digest)
        if before is None or now_s - before.answered_s >= OUTAGE_S:
            return HTTPStatus.SERVICE_UNAVAILABLE
        before.until_s = min(now_s + KEPT_S, before.answered_s + OUTAGE_S)
        return before.status

    async def _decide(self, token: str) -> HTTPStatus:
        """Raises a RequestFailed without an answer."""
        body = _body("authentication.k8s.io/v1", "TokenReview", {"token": token})
        found: _TokenReview = await self.api.review(
            paths.AUTHENTICATION_REVIEWS, body, deadline_s=REVIEW_S, decode=_read_token_review
        )
        if not found.status.authenticated:
            return HTTPStatus.UNAUTHORIZED
        user = found.status.user
        access = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        body = _body("authorization.k8s.io/v1", "SubjectAccessReview", access)
        right: _AccessReview = await self.api.review(
            paths.ACCESS_REVIEWS, body, deadline_s=REVIEW_S, decode=_read_access_review
        )
        if right.status.error and not right.status.allowed:
            raise Unreachable(f"the right cannot be reviewed: {right.status.error}")
        return HTTPStatus.OK if right.status.allowed else HTTPStatus.FORBIDDEN

    def _note(self, *, failed: RequestFailed | None) -> None:
        if failed is not None and not self._failing:
            logger.warning("tokens for metrics not reviewed", extra={"error": str(failed)})
        self._failing = failed is not None


def _body(version: str, kind: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "spec": spec}
