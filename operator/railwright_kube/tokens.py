"""Verify projected service account tokens with the API server's published keys, without requests.

The verified claims of a token are cached by its digest, so its next use costs one look-up.
Whether its pod is live is not cached: it is read from the informer at every use.

While the API server is unreachable kubelets cannot renew tokens. Then an expired token of a live
pod stays valid for ``OUTAGE_S`` more.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import jwt
import msgspec
from jwt.types import Options
from prometheus_client import Counter

from railwright_kube.metrics import begin
from railwright_kube.signing_keys import PublishedKeys

KEPT_MAX = 65_536
TOKEN_BYTES_MAX = 8192
LEEWAY_S = 60.0
"""Between two clocks: what the API server itself allows."""

OUTAGE_S = 900.0

OUTCOMES = ("good", "no keys", "malformed", "unknown key", "refused", "expired", "no such pod")

OPTIONS: Options = {
    "enforce_minimum_key_length": True,
    "verify_aud": False,
    "verify_exp": False,
    "verify_iat": False,
    "verify_iss": False,
    "verify_nbf": False,
}
"""The audience depends on the message, and its receiver compares it; times are checked here. The
API server names one issuer and accepts the tokens of several while a site changes it; all are
signed with the published keys, and the pod's UID is one of this cluster."""


def subject(keys: PublishedKeys, token: str) -> str:
    """Of the service account that a token was signed for, whatever its times and its audience;
    empty if it is no token of a service account."""
    try:
        key = keys.find(jwt.get_unverified_header(token)["kid"])
        claims = {} if key is None else jwt.decode(token, key, options=OPTIONS)
        return str(claims.get("sub", ""))
    except (jwt.PyJWTError, KeyError, ValueError, RecursionError):
        return ""


class TokenRefusedError(Exception):
    """A token that is not accepted, and why."""


class KeysNotReadError(Exception):
    """No token can be verified yet."""


class _Pod(msgspec.Struct):
    uid: str


class _Binding(msgspec.Struct):
    """The claim ``kubernetes.io``. A token that is bound to no pod has no ``pod``."""

    pod: _Pod


class _Claims(msgspec.Struct):
    sub: str
    aud: tuple[str, ...]
    exp: int
    nbf: int
    binding: _Binding = msgspec.field(name="kubernetes.io")


@dataclass(frozen=True, slots=True)
class Bearer:
    """The bearer of a token: its pod, the service account, the node of the pod (empty while it has
    none), and the audiences of the token."""

    pod_uid: str
    service_account: str
    node: str
    audiences: tuple[str, ...]


@dataclass(eq=False, repr=False)
class Tokens:
    """Verifies tokens. ``clock`` is Unix time. ``checks`` counts verifications by outcome.

    ``node_of`` gives the node of the live pod with a UID: empty while it is not bound, None when
    there is no such pod.
    """

    keys: PublishedKeys
    _: KW_ONLY
    node_of: Callable[[str], str | None]
    checks: Counter
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        begin(self.checks, OUTCOMES)
        self._verified: OrderedDict[bytes, _Claims] = OrderedDict()
        self._generation = 0
        """Of the keys that these were verified with."""

    def bearer(self, token: str) -> Bearer:
        """Verify a token; return its bearer.

        Raises TokenRefusedError, or KeysNotReadError.
        """
        if not token or len(token) > TOKEN_BYTES_MAX:
            raise self._refusal("malformed", "no bearer token that can be read")
        digest = hashlib.sha256(token.encode()).digest()
        if self._generation != self.keys.generation:
            self._verified.clear()
            self._generation = self.keys.generation
        held = self._verified.get(digest)
        if held is None:
            held = self._verified[digest] = self._verify(token)
            if len(self._verified) > KEPT_MAX:
                self._verified.popitem(last=False)
        self._check_times(held)
        pod_uid = held.binding.pod.uid
        node = self.node_of(pod_uid)
        if node is None:
            raise self._refusal("no such pod", "the pod of the token is not live")
        return Bearer(pod_uid, held.sub, node, held.aud)

    def _verify(self, token: str) -> _Claims:
        """The claims of a token whose signature is valid."""
        if not self.keys.available:
            self.checks.labels("no keys").inc()
            raise KeysNotReadError("the signing keys have not been read yet")
        try:
            key = self.keys.find(jwt.get_unverified_header(token)["kid"])
            if key is None:
                raise self._refusal("unknown key", "the token is signed with an unknown key")
            claims = msgspec.convert(jwt.decode(token, key, options=OPTIONS), _Claims)
        except (jwt.PyJWTError, KeyError, ValueError, RecursionError) as error:
            raise self._refusal("refused", f"the token is not good: {error}") from error
        self.checks.labels("good").inc()
        return claims

    def _check_times(self, held: _Claims) -> None:
        now_s = self.clock()
        if now_s + LEEWAY_S < held.nbf:
            raise self._refusal("refused", "the token is not valid yet")
        over_s = now_s - LEEWAY_S - held.exp
        if over_s <= 0:
            return
        if over_s > OUTAGE_S or not self.keys.was_unreachable():
            raise self._refusal("expired", f"the token expired {over_s + LEEWAY_S:.0f} s ago")

    def _refusal(self, outcome: str, reason: str) -> TokenRefusedError:
        self.checks.labels(outcome).inc()
        return TokenRefusedError(reason)
