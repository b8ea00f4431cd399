"""Whose token is this: the API server says, and its answer is kept for ten minutes.

A launcher speaks every two seconds; asking each time would be thousands of TokenReviews a second.
So answers are kept by the token's hash, refusals shortly: 16,384 launchers cause 27 a second. A
token outlives its expiry by no more, and only for as long as its pod lives.
That a pod was deleted meanwhile is not this file's concern: its caller compares with the pod that
lives now, at every message. Tokens that nobody has seen cost a review, so each peer may cause only
so many.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from railwright_operator.heartbeats import refusals
from railwright_operator.heartbeats.refusals import RefusedError
from railwright_operator.kube import bodies, paths
from railwright_operator.kube.client import Api
from railwright_operator.kube.errors import RequestFailed
from railwright_operator.metrics import HeartbeatMetrics

KEPT_S = 600.0
REFUSAL_KEPT_S = 5.0
KEPT_MAX = 65_536
REVIEW_DEADLINE_S = 4.0
REVIEWS_AT_ONCE_MAX = 16
PEER_REVIEWS_PER_S = 20.0
PEER_REVIEWS_AT_ONCE = 200.0
PEERS_MAX = 65_536
TOKEN_BYTES_MAX = 8192
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"

_Key = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whose a token is: the pod that it is bound to, its account, and the node that the pod was
    bound to when the token was made; empty where it was bound to none."""

    pod_uid: str
    user: str
    node: str


@dataclass(frozen=True, slots=True)
class _Answer:
    bearer: Bearer | None
    until_s: float


@dataclass(slots=True)
class _Allowance:
    """How many reviews a peer may still cause; grows with time up to its bound."""

    left: float
    at_s: float


class Tokens:
    """Answers of the API server about tokens. ``clock`` is monotonic seconds."""

    def __init__(self, api: Api, *, metrics: HeartbeatMetrics, clock: Callable[[], float]) -> None:
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._answers: OrderedDict[_Key, _Answer] = OrderedDict()
        self._peers: OrderedDict[str, _Allowance] = OrderedDict()
        self._slots = asyncio.Semaphore(REVIEWS_AT_ONCE_MAX)

    def __repr__(self) -> str:
        return f"<Tokens answers={len(self._answers)} peers={len(self._peers)}>"

    async def bearer(self, token: str, *, audience: str, peer: str) -> Bearer:
        """Whose this token is, if it is good for this audience and bound to a pod.

        ``peer`` is who connects. Raises RefusedError: FORBIDDEN, or LATER when nobody can say now.
        """
        if not token or len(token) > TOKEN_BYTES_MAX:
            raise RefusedError(refusals.FORBIDDEN, "no bearer token that can be read")
        key = (hashlib.sha256(token.encode()).digest(), audience)
        answer = self._answers.get(key)
        if answer is None or self._clock() >= answer.until_s:
            self._spend(peer)
            answer = await self._review(token, audience)
            self._keep(key, answer)
        if answer.bearer is None:
            raise RefusedError(refusals.FORBIDDEN, "the token is not good for this")
        return answer.bearer

    async def _review(self, token: str, audience: str) -> _Answer:
        try:
            async with asyncio.timeout(REVIEW_DEADLINE_S), self._slots:
                raw = await self._api.ask(
                    paths.TOKEN_REVIEWS,
                    bodies.token_review(token, audience),
                    deadline_s=REVIEW_DEADLINE_S,
                )
        except (RequestFailed, TimeoutError) as error:
            self._metrics.token_reviews.labels("unanswered").inc()
            raise RefusedError(refusals.LATER, "the token cannot be checked now") from error
        bearer = _bearer(raw, audience)
        self._metrics.token_reviews.labels("refused" if bearer is None else "good").inc()
        kept_s = REFUSAL_KEPT_S if bearer is None else KEPT_S
        return _Answer(bearer, self._clock() + kept_s)

    def _keep(self, key: _Key, answer: _Answer) -> None:
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > KEPT_MAX:
            self._answers.popitem(last=False)

    def _spend(self, peer: str) -> None:
        now_s = self._clock()
        held = self._peers.setdefault(peer, _Allowance(PEER_REVIEWS_AT_ONCE, now_s))
        grown = held.left + (now_s - held.at_s) * PEER_REVIEWS_PER_S
        held.left, held.at_s = min(PEER_REVIEWS_AT_ONCE, grown), now_s
        self._peers.move_to_end(peer)
        while len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)
        if held.left < 1.0:
            self._metrics.token_reviews.labels("limited").inc()
            raise RefusedError(refusals.LATER, "too many unknown tokens from this address")
        held.left -= 1.0


def _bearer(review: Any, audience: str) -> Bearer | None:
    """Whose it is, if the review says yes for this audience, and the token is bound to a pod."""
    status = review.get("status", {})
    if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
        return None
    user = status.get("user", {})
    extra = user.get("extra") or {}
    uids: list[str] = extra.get(POD_UID) or []
    nodes: list[str] = extra.get(NODE_NAME) or []
    if len(uids) != 1:
        return None
    return Bearer(
        str(uids[0]), str(user.get("username") or ""), str(nodes[0]) if len(nodes) == 1 else ""
    )
