"""How many TokenReviews launchers cause, honest ones and others."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.heartbeats import refusals, tokens
from railwright_operator.heartbeats.refusals import RefusedError
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.kube.client import Api

LAUNCHERS = 16_384
AUDIENCE = "railwright.dev/job"
GOOD = "good-"


class Reviewer:
    """Answers reviews: tokens that begin with ``good`` are of the pod named after it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.reviews = 0
        series = metrics.build(CollectorRegistry()).heartbeats
        self.tokens = Tokens(cast("Api", self), metrics=series, clock=lambda: self.now_s)

    async def ask(self, path: str, body: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        self.reviews += 1
        token = body["spec"]["token"]
        if not token.startswith(GOOD):
            return {"status": {"authenticated": False}}
        user = {"extra": {tokens.POD_UID: [token.removeprefix(GOOD)]}}
        return {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user}}

    async def beat(self, token: str, peer: str) -> int:
        """The status it is refused with, 200 if it is not."""
        try:
            await self.tokens.bearer(token, audience=AUDIENCE, peer=peer)
        except RefusedError as error:
            return error.status
        return 200


async def test_the_launchers_of_the_largest_job_cause_fewer_than_30_reviews_a_second() -> None:
    reviewer = Reviewer()
    minutes = 20
    for minute in range(minutes):
        reviewer.now_s = minute * 60.0
        for number in range(LAUNCHERS):
            assert await reviewer.beat(f"{GOOD}{number}", f"10.0.{number // 256}.{number}") == 200
    assert reviewer.reviews / (minutes * 60) < 30


async def test_a_flood_of_tokens_that_nobody_has_seen_ends_at_the_peers_allowance() -> None:
    reviewer = Reviewer()
    seconds = 60
    for second in range(seconds):
        reviewer.now_s = float(second)
        unseen = [f"bad-{second}-{number}" for number in range(99)]
        answers = {await reviewer.beat(token, "10.0.0.1") for token in unseen}
    assert answers == {refusals.FORBIDDEN, refusals.LATER}
    most = tokens.PEER_REVIEWS_AT_ONCE + seconds * tokens.PEER_REVIEWS_PER_S
    assert reviewer.reviews <= most
    assert await reviewer.beat(f"{GOOD}1", "10.0.0.2") == 200


@pytest.mark.parametrize("token", ["", "x" * 9000])
async def test_what_is_no_token_is_not_asked_about(token: str) -> None:
    reviewer = Reviewer()
    assert await reviewer.beat(token, "10.0.0.1") == refusals.FORBIDDEN
    assert reviewer.reviews == 0
