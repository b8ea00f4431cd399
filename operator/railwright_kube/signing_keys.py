"""The public keys of service account tokens, refreshed from the API server.

``Tokens`` verifies with them. A token with an unknown key ID causes an early refresh. The interval
between early refreshes grows while they find no new key, so forged key IDs cause no load. The
refresh also shows whether the API server responds: while it does not, kubelets cannot renew tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

import jwt
import msgspec

from railwright_kube import paths
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_kube.errors import ApiError, RequestFailed, Unreachable

logger = logging.getLogger(__name__)

REFRESH_S = 30.0
READ_DEADLINE_S = 5.0
EARLY_S = Backoff(1.0, REFRESH_S)
"""Between an early or failed refresh and the next one."""

KEY_SET = "application/jwk-set+json"
"""The API server gives its keys in no other format."""

KEYS_MAX = 64
ALGORITHMS = frozenset({"RS256", "ES256", "ES384", "ES512"})
"""What an API server signs with: its own keys give the first three of a curve or RS256, an external
signer any. No symmetric algorithm is among them, and no "none"."""

FAILURES_OF_OUTAGE = 3
"""Refreshes in a row that no API server answered. A single one may be lost to a restart or a busy
network, while kubelets renew tokens."""

SERVER_ERROR = 500
RENEWAL_S = 180.0
"""After an outage kubelets renew mounted tokens within two of their rounds of 60 to 90 seconds."""


class _Key(msgspec.Struct):
    """A JSON Web Key; its numbers stay in the raw object."""

    kid: str
    kty: str
    alg: str


class PublishedKeys:
    """The keys by ID. ``clock`` is monotonic seconds."""

    def __init__(self, api: Api, *, clock: Callable[[], float], rng: Random) -> None:
        self._api = api
        self._clock = clock
        self._rng = rng
        self._keys: Mapping[str, jwt.PyJWK] = MappingProxyType({})
        self._published: object = None
        self._failing = False
        self._unanswered = 0
        """Refreshes in a row."""
        self._failed_s: float | None = None
        self._requested = asyncio.Event()
        self.generation = 0
        """Grows with every change of the keys: what was verified before is void."""

    @property
    def available(self) -> bool:
        """Whether the keys were ever read."""
        return bool(self._keys)

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """The key with this ID. An unknown ID causes an early refresh."""
        found = self._keys.get(key_id)
        if found is None:
            self._requested.set()
        return found

    def was_unreachable(self) -> bool:
        """Whether the API server is unreachable, or was so recently that tokens may still be
        expired."""
        return self._failed_s is not None and self._clock() - self._failed_s < RENEWAL_S

    async def run(self) -> None:
        """Refresh until cancelled."""
        early = 0
        while True:
            news = await self.refresh()
            early = 0 if news else early + 1
            wait_s = EARLY_S.delay_s(early, self._rng)
            await asyncio.sleep(wait_s)
            if self.available and not self._failing:
                try:
                    async with asyncio.timeout(REFRESH_S):
                        await self._requested.wait()
                except TimeoutError:
                    early = 0

    async def refresh(self) -> bool:
        """Read the keys once; return whether they changed."""
        self._requested.clear()
        try:
            published = await self._api.get(
                paths.SIGNING_KEYS, deadline_s=READ_DEADLINE_S, accept=KEY_SET
            )
            if published == self._published:
                self._note(failed=None)
                return False
            keys = _read(published)
        except (RequestFailed, msgspec.ValidationError) as error:
            self._note(failed=error)
            return False
        self._note(failed=None)
        self._published, self._keys = published, MappingProxyType(keys)
        self.generation += 1
        logger.info("signing keys read", extra={"keys": sorted(keys)})
        return True

    def _note(self, *, failed: Exception | None) -> None:
        self._unanswered = self._unanswered + 1 if _is_outage(failed) else 0
        if self._unanswered >= FAILURES_OF_OUTAGE:
            self._failed_s = self._clock()
        if failed is not None:
            if not self._failing:
                logger.warning("signing keys not read", extra={"error": str(failed)})
        elif self._failing:
            logger.info("signing keys readable again")
        self._failing = failed is not None


def _is_outage(failed: Exception | None) -> bool:
    """Whether the error means that the API server is unreachable or does not work."""
    if isinstance(failed, ApiError):
        return failed.status >= SERVER_ERROR
    return isinstance(failed, Unreachable)


def _read(published: object) -> dict[str, jwt.PyJWK]:
    """The keys for signatures. Raises ValidationError for anything but a key set."""
    raw = msgspec.convert(published, dict[str, object]).get("keys")
    found: dict[str, jwt.PyJWK] = {}
    for item in msgspec.convert(raw, list[dict[str, object]])[:KEYS_MAX]:
        try:
            key = msgspec.convert(item, _Key)
            if key.alg in ALGORITHMS and key.kty != "oct":
                found[key.kid] = jwt.PyJWK(item, algorithm=key.alg)
        except (jwt.PyJWTError, msgspec.ValidationError) as error:
            logger.warning("signing key skipped", extra={"error": str(error)})
    return found
