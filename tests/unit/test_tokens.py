"""Service account tokens: what is verified, what is refused, and what an outage changes."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from http import HTTPStatus
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from prometheus_client import CollectorRegistry

from fixtures import shell
from fixtures.tokens import LIFE_S, KeyServer, SigningKey
from railwright_kube import errors, tokens
from railwright_kube import signing_keys as keys
from railwright_kube.tokens import Bearer, KeysNotReadError, TokenRefusedError, Tokens
from railwright_operator import metrics

AUDIENCE = "railwright.dev/job"
POD = "pod-uid"
INVENTING_S = 4.0
KEY = SigningKey("first")
DOWN = errors.ApiError(503, "ServiceUnavailable", message="etcd")
DENIED = errors.ForbiddenError(403, "Forbidden", message="no")


class Checker:
    """Tokens over keys of our own, and pods that live, with the node of each."""

    def __init__(self, *signers: SigningKey) -> None:
        self.now_s = 1_800_000_000.0
        self.server = KeyServer(*(signers or [KEY]))
        self.keys = self.server.published(lambda: self.now_s)
        self.pods = {POD: "n0"}
        self.registry = CollectorRegistry()
        series = metrics.Metrics(self.registry).heartbeats
        self.tokens = Tokens(
            self.keys, node_of=self.pods.get, checks=series.token_checks, clock=lambda: self.now_s
        )

    def made(self, signer: SigningKey = KEY, pod_uid: str = POD, **claims: Any) -> str:
        return signer.token(pod_uid, AUDIENCE, now_s=self.now_s, **claims)

    async def fail(self, failure: errors.RequestFailed, times: int) -> None:
        """So many refreshes fail with it."""
        self.server.failure = failure
        for _ in range(times):
            await self.keys.refresh()

    def status(self, token: str) -> int:
        """The status that a server refuses it with, 200 if it does not."""
        try:
            self.tokens.bearer(token)
        except TokenRefusedError:
            return HTTPStatus.FORBIDDEN
        except KeysNotReadError:
            return HTTPStatus.SERVICE_UNAVAILABLE
        return 200

    def checked(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("railwright_token_checks_total", labels) or 0.0


@pytest.fixture
async def checker() -> Checker:
    made = Checker()
    await made.keys.refresh()
    return made


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384", "ES512"])
async def test_token_of_live_pod_names_its_bearer(algorithm: str) -> None:
    signer = SigningKey("key", algorithm)
    checker = Checker(signer)
    await checker.keys.refresh()
    bearer = checker.tokens.bearer(checker.made(signer))
    assert bearer == Bearer(POD, "system:serviceaccount:team:default", "n0", (AUDIENCE,))


async def test_cached_token_is_verified_once(checker: Checker) -> None:
    token = checker.made()
    assert [checker.status(token) for _ in range(3)] == [200] * 3
    assert checker.checked("good") == 1.0


async def test_token_of_deleted_pod_is_refused_at_once(checker: Checker) -> None:
    token = checker.made()
    assert checker.status(token) == 200
    del checker.pods[POD]
    assert checker.status(token) == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": 1_799_999_000},
        {"nbf": 1_800_000_900},
        {"aud": AUDIENCE},
        {"kubernetes.io": None},
        {"kubernetes.io": {"namespace": "team"}},
        {"kubernetes.io": {"pod": {"name": "no uid"}}},
        {"kubernetes.io": {"pod": {"uid": "of a pod that is gone"}}},
    ],
    ids=str,
)
async def test_token_with_bad_claim_is_refused(checker: Checker, claims: dict[str, Any]) -> None:
    assert checker.status(checker.made(**claims)) == HTTPStatus.FORBIDDEN


async def test_token_of_another_key_is_refused(checker: Checker) -> None:
    assert checker.status(checker.made(SigningKey("first"))) == HTTPStatus.FORBIDDEN
    assert checker.status(checker.made(SigningKey("second"))) == HTTPStatus.FORBIDDEN


def _forged(token: str, algorithm: str) -> str:
    """The token with another algorithm in its head and, where it takes a secret, the public key
    as that."""
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    secret = "" if algorithm == "none" else KEY.public["x"].ljust(64)
    return jwt.encode(claims, secret, algorithm=algorithm, headers={"kid": KEY.key_id})


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512"])
async def test_algorithm_of_no_published_key_is_refused(checker: Checker, algorithm: str) -> None:
    assert checker.status(_forged(checker.made(), algorithm)) == HTTPStatus.FORBIDDEN


async def test_token_with_critical_extension_is_refused(checker: Checker) -> None:
    """RFC 7515: a reader that does not know an extension that ``crit`` names refuses the token."""
    for head, status in (({}, 200), ({"crit": ["later"], "later": 1}, HTTPStatus.FORBIDDEN)):
        claims = jwt.decode(checker.made(), options={"verify_signature": False})
        assert checker.status(KEY.signed(claims, **head)) == status


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_changed_token_is_refused(checker: Checker, part: int) -> None:
    parts = checker.made().split(".")
    changed = checker.made(iat=1).split(".")
    changed[0] += "A"
    parts[part] = changed[part]
    assert checker.status(".".join(parts)) == HTTPStatus.FORBIDDEN


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_short_published_key_is_not_used() -> None:
    private = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    short = SigningKey("short", "RS256", private=private)
    checker = Checker(KEY, short)
    await checker.keys.refresh()
    assert checker.status(checker.made()) == 200
    assert checker.status(checker.made(short)) == HTTPStatus.FORBIDDEN


async def test_symmetric_published_key_is_not_used() -> None:
    secret = base64.urlsafe_b64encode(b"s" * 64).decode()
    published = {"kty": "oct", "k": secret, "kid": "oct", "alg": "HS256"}

    class Symmetric(SigningKey):
        @property
        def public(self) -> dict[str, Any]:
            return published

    checker = Checker(KEY, Symmetric("oct"))
    await checker.keys.refresh()
    assert checker.keys.find(KEY.key_id) is not None
    assert checker.keys.find("oct") is None


@pytest.mark.parametrize("token", ["", "x" * 9000, "a.b", "a.b.c", "é.ü.ß", "\x00" * 3])
async def test_unreadable_token_is_refused(checker: Checker, token: str) -> None:
    assert checker.status(token) == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("stated", ['{"a":', '{"kid":"first","alg":"ES256","a":'])
async def test_deeply_nested_token_head_is_refused(
    checker: Checker, opening: str, stated: str
) -> None:
    """JSON parsers recurse, and the interpreter ends a recursion that is too deep."""
    nested = stated + opening * (tokens.TOKEN_BYTES_MAX * 5 // 8 // len(opening))
    head = base64.urlsafe_b64encode(nested.encode()).decode()
    assert checker.status(f"{head}.e30.e30") == HTTPStatus.FORBIDDEN
    assert checker.checked("refused") == 1.0


async def test_token_before_keys_are_read_may_come_back() -> None:
    checker = Checker()
    assert checker.status(checker.made()) == HTTPStatus.SERVICE_UNAVAILABLE


async def test_rotated_key_is_found_and_old_one_forgotten(checker: Checker) -> None:
    old, rotated = checker.made(), SigningKey("second")
    assert checker.status(old) == 200
    checker.server.keys = [rotated]
    running = asyncio.create_task(checker.keys.run())
    try:
        await shell.until(
            lambda: checker.status(checker.made(rotated)) == 200,
            "the new key",
            deadline_s=keys.REFRESH_S / 2,
        )
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert checker.status(old) == HTTPStatus.FORBIDDEN


async def test_invented_key_ids_cause_few_requests(checker: Checker) -> None:
    running = asyncio.create_task(checker.keys.run())
    before = checker.server.requests
    end_s = time.monotonic() + INVENTING_S
    while time.monotonic() < end_s:
        checker.status(checker.made(SigningKey("invented")))
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert checker.server.requests - before <= 2 * 6


async def test_expired_token_is_good_in_outage(checker: Checker) -> None:
    token = checker.made()
    assert checker.status(token) == 200
    checker.now_s += LIFE_S + tokens.LEEWAY_S + 1
    assert checker.status(token) == HTTPStatus.FORBIDDEN
    await checker.fail(errors.Unreachable("lost"), keys.FAILURES_OF_OUTAGE)
    assert checker.status(token) == 200
    del checker.pods[POD]
    assert checker.status(token) == HTTPStatus.FORBIDDEN
    checker.pods[POD] = "n0"
    checker.now_s += tokens.OUTAGE_S
    await checker.keys.refresh()
    assert checker.status(token) == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    ("failures", "status"),
    [
        ([errors.Unreachable("lost")] * 2, HTTPStatus.FORBIDDEN),
        ([errors.Unreachable("lost"), DOWN, DOWN], 200),
        ([errors.Unreachable("lost"), DOWN, DENIED, DOWN, DOWN], HTTPStatus.FORBIDDEN),
        ([DENIED] * 6, HTTPStatus.FORBIDDEN),
        ([errors.AnswerTooLarge("keys")] * 6, HTTPStatus.FORBIDDEN),
    ],
    ids=["two lost", "three", "one answered", "denied", "too large"],
)
async def test_outage_is_three_unanswered_refreshes(
    checker: Checker, failures: list[errors.RequestFailed], status: int
) -> None:
    token = checker.made()
    checker.now_s += LIFE_S + tokens.LEEWAY_S + 1
    for failure in failures:
        await checker.fail(failure, 1)
    assert checker.status(token) == status


async def test_outage_grace_ends_after_renewal(checker: Checker) -> None:
    token = checker.made()
    checker.now_s += LIFE_S + tokens.LEEWAY_S + 1
    await checker.fail(errors.Unreachable("lost"), keys.FAILURES_OF_OUTAGE)
    checker.server.failure = None
    await checker.keys.refresh()
    assert checker.status(token) == 200
    checker.now_s += keys.RENEWAL_S + 1
    assert checker.status(token) == HTTPStatus.FORBIDDEN


async def test_token_of_an_earlier_issuer_is_good(checker: Checker) -> None:
    """As to the API server, which is given both while a site changes its issuer."""
    assert checker.status(checker.made(iss="https://earlier.example")) == 200


@pytest.mark.parametrize("published", [None, [], {"keys": 1}, {"keys": [1]}], ids=str)
async def test_unreadable_key_set_leaves_the_old_one(checker: Checker, published: object) -> None:
    async def get(path: str, **_: object) -> Any:
        assert path
        return published

    checker.server.get = get  # type: ignore[method-assign]
    assert not await checker.keys.refresh()
    assert checker.status(checker.made()) == 200
