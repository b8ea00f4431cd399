"""Credentials for the API server: a signing key, static tokens, and kubeconfig files."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

# Order of the group of curve P-256 (FIPS 186-4, D.1.2.3) and the curve's object identifier.
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_P256_OID = bytes.fromhex("06082a8648ce3d030107")


@dataclass(frozen=True, slots=True)
class StaticToken:
    """One line of the API server's token file."""

    token: str
    user: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where the API server is reached, at its own address or at one in front of it."""

    url: str
    ca_file: Path


def new_admin() -> StaticToken:
    return StaticToken(secrets.token_urlsafe(24), "railwright-testbed", ("system:masters",))


def new_controller_manager() -> StaticToken:
    return StaticToken(
        secrets.token_urlsafe(24), "system:kube-controller-manager", ("system:masters",)
    )


def new_simulated_nodes() -> StaticToken:
    """The identity of kwok's kubelets: admission policies identify them by their group."""
    return StaticToken(
        secrets.token_urlsafe(24), "railwright-kwok", ("system:masters", "system:nodes")
    )


def new_proxy() -> StaticToken:
    """The identity of every kube-proxy: the API server grants this name what it needs."""
    return StaticToken(secrets.token_urlsafe(24), "system:kube-proxy", ())


def new_scheduler() -> StaticToken:
    """The identity of kube-scheduler, which the API server knows too."""
    return StaticToken(secrets.token_urlsafe(24), "system:kube-scheduler", ())


def new_dns() -> StaticToken:
    return StaticToken(secrets.token_urlsafe(24), "railwright-dns", ("system:masters",))


def new_node(name: str) -> StaticToken:
    """The identity of a kubelet for the Node authorizer."""
    return StaticToken(secrets.token_urlsafe(24), f"system:node:{name}", ("system:nodes",))


def write_tokens(path: Path, tokens: list[StaticToken]) -> None:
    lines = [f'{t.token},{t.user},{t.user},"{",".join(t.groups)}"\n' for t in tokens]
    _write_secret(path, "".join(lines))


def write_signing_key(path: Path) -> None:
    """A new P-256 private key (RFC 5915), with which service account tokens are signed.

    The file may omit the public key, as readers compute it. So no cryptography library is needed
    here.
    """
    scalar = secrets.randbelow(_P256_ORDER - 1) + 1
    version = b"\x02\x01\x01"
    private_key = _der(0x04, scalar.to_bytes(32, "big"))
    key = _der(0x30, version + private_key + _der(0xA0, _P256_OID))
    text = base64.encodebytes(key).decode()
    _write_secret(path, f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n")


def write_kubeconfig(path: Path, entrance: Entrance, *, token: str) -> Path:
    """A kubeconfig as JSON, which is YAML too. The CA is embedded, so the file can be copied."""
    name = "railwright-testbed"
    authority = base64.b64encode(entrance.ca_file.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": entrance.url, "certificate-authority-data": authority},
            }
        ],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    _write_secret(path, json.dumps(document, indent=1) + "\n")
    return path


def _der(tag: int, content: bytes) -> bytes:
    assert len(content) < 128, "longer contents need the long form of the length"
    return bytes([tag, len(content)]) + content


def _write_secret(path: Path, text: str) -> None:
    """Replace the file as a whole: a process that starts meanwhile may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.replace(path)
