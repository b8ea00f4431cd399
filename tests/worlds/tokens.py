"""Tokens of service accounts, signed here as an API server signs them, at any time."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jwt
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from jwt import algorithms

from railwright_operator.heartbeats.keys import KEY_SET, PublishedKeys
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api

TIMES = ("iat", "nbf", "exp")
COORDINATE_BYTES = 32
ISSUER = "https://kubernetes.default.svc"
LIFE_S = 3600
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def aged(token: str, signing_key: Path, *, by_s: int) -> str:
    """The same token, issued by the API server so many seconds earlier (RFC 7518, ES256)."""
    header, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims |= {name: claims[name] - by_s for name in TIMES}
    signed = f"{header}.{_encoded(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key(signing_key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), key
    signature = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    raw = b"".join(number.to_bytes(COORDINATE_BYTES, "big") for number in signature)
    return f"{signed}.{_encoded(raw)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SigningKey:
    """A key pair such as an API server has."""

    def __init__(self, key_id: str, algorithm: str = "ES256", *, private: Any = None) -> None:
        self.key_id, self.algorithm = key_id, algorithm
        self._private = private or (
            rsa.generate_private_key(public_exponent=65537, key_size=2048)
            if algorithm == "RS256"
            else ec.generate_private_key(CURVES[algorithm])
        )

    @classmethod
    def read(cls, file: Path) -> SigningKey:
        """One that ``write`` wrote, of elliptic curve P-256."""
        private = serialization.load_pem_private_key(file.read_bytes(), password=None)
        return cls(file.stem, private=private)

    def write(self, file: Path) -> None:
        """Keep it in a file, whose stem is its ID."""
        data = self._private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file.write_bytes(data)

    @property
    def public(self) -> dict[str, Any]:
        """As it is published."""
        kind = algorithms.get_default_algorithms()[self.algorithm]
        public: dict[str, Any] = kind.to_jwk(self._private.public_key(), as_dict=True)
        return public | {"kid": self.key_id, "alg": self.algorithm, "use": "sig"}

    def token(
        self,
        pod_uid: str,
        audience: str,
        *,
        now_s: float | None = None,
        account: str = "default",
        **claims: Any,
    ) -> str:
        """A token of a pod, made now; ``claims`` replace those that it would have, or (None) take
        them away."""
        made_s = int(time.time() if now_s is None else now_s)
        bound = {"namespace": "team", "serviceaccount": {"name": account, "uid": "u"}}
        if pod_uid:
            bound["pod"] = {"name": f"pod-{pod_uid}", "uid": pod_uid}
        usual = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:team:{account}",
            "aud": [audience],
            "iat": made_s,
            "nbf": made_s,
            "exp": made_s + LIFE_S,
            "kubernetes.io": bound,
        }
        return self.signed({name: it for name, it in (usual | claims).items() if it is not None})

    def signed(self, claims: dict[str, Any], **head: object) -> str:
        """A token of these claims; ``head`` is added to what its head says."""
        headers = {"kid": self.key_id, **head}
        return jwt.encode(claims, self._private, algorithm=self.algorithm, headers=headers)


class KeyServer:
    """The part of an API server that publishes ``keys``; fails where there is a ``failure``."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = [*keys]
        self.failure: errors.RequestFailed | None = None
        self.requests = 0

    async def get(self, path: str, *, deadline_s: float, accept: str = "") -> dict[str, Any]:
        """As ``Api.get``."""
        self.requests += 1
        if self.failure is not None:
            raise self.failure
        assert (path, accept) == (paths.SIGNING_KEYS, KEY_SET)
        return {"keys": [key.public for key in self.keys]}

    def published(self, clock: Callable[[], float] = time.monotonic) -> PublishedKeys:
        """What the operator keeps of it; nothing is read yet."""
        return PublishedKeys(cast("Api", self), clock=clock, rng=random.Random(0))
