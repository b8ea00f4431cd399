"""Tokens of service accounts as they will be: time cannot be waited for, but it can be signed."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

TIMES = ("iat", "nbf", "exp")
COORDINATE_BYTES = 32


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
