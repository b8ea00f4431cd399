"""An authority that signs the certificates of a server: pure functions of a key, a name and a time.

Whoever connects trusts the authority, for as long as its process runs. So the authority lives for
years, and what it signs for days. The chain and the extensions are those of RFC 5280.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=3650)
CERTIFICATE_LIFE = timedelta(days=7)
BACKDATED = timedelta(days=1)
"""Clocks of nodes differ."""

CERTIFICATES_MAX = 8
COMMON_NAME = "railwright"
COMMON_NAME_MAX = 64

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class AuthorityError(ValueError):
    """Why these bytes are no authority, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate with its chain, and its private key, as PEM."""

    chain: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """Its certificate and private key, as PEM, and what others trust: its own certificate, or that
    of the root that signed it."""

    certificate: bytes
    key: bytes = field(repr=False)
    trusted: bytes


def new(host: str, now_s: float) -> Authority:
    """An authority for the certificates of this host. ``now_s`` is seconds since the epoch."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{COMMON_NAME} {host}")
    now = datetime.fromtimestamp(now_s, UTC)
    usage = dict.fromkeys(_USAGES, False) | {"key_cert_sign": True, "crl_sign": True}
    certificate = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return Authority(pem, _written(key), trusted=pem)


def read(certificate: bytes, key: bytes, trusted: bytes, *, now_s: float) -> Authority:
    """Check an authority that somebody stored. Raises AuthorityError if it cannot sign.

    ``trusted`` goes into the environment of every pod: nothing but its certificates is kept.
    """
    now, roots = datetime.fromtimestamp(now_s, UTC), _certificates(trusted)
    for each in (*_certificates(certificate), *roots):
        if each.not_valid_after_utc <= now:
            raise AuthorityError(f"a certificate expired at {each.not_valid_after_utc:%Y-%m-%d}")
        if each.not_valid_before_utc > now:
            raise AuthorityError(
                f"a certificate is valid from {each.not_valid_before_utc:%Y-%m-%dT%H:%MZ} on"
            )
    own, signs = _certificate(certificate), _key(key)
    try:
        is_authority = own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_authority = False
    if not is_authority:
        raise AuthorityError("the certificate is not that of an authority (CA:TRUE)")
    if own.public_key() != signs.public_key():
        raise AuthorityError("the key is not that of the certificate")
    pems = (each.public_bytes(serialization.Encoding.PEM) for each in roots)
    return Authority(certificate, key, b"".join(pems))


def sign(authority: Authority, host: str, now_s: float) -> Signed:
    """A new key and its certificate for this host, a name or an address. ``now_s`` is seconds since
    the epoch."""
    issuer, issuer_key = _certificate(authority.certificate), _key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.fromtimestamp(now_s, UTC)
    usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
    certificate = (
        _builder(_name(host), issuer.subject, key.public_key(), now, CERTIFICATE_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host)]), critical=False)
        .add_extension(_identifier(issuer), critical=False)
        .sign(issuer_key, _hash(issuer_key))
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return Signed(pem + authority.certificate, _written(key))


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """By the identifier that the issuer states, which need not be a digest of its key."""
    try:
        stated = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(_key_of(issuer))
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(stated.value)


def _key_of(
    issuer: x509.Certificate,
) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey:
    key = issuer.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey)
    return key


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_MAX])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hash(key: Key) -> hashes.SHA256 | None:
    """The hash that this kind of key signs; an Ed25519 key signs the message itself."""
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _certificate(pem: bytes) -> x509.Certificate:
    return _certificates(pem)[0]


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise AuthorityError(f"a certificate cannot be read as PEM: {error}") from error
    if len(found) > CERTIFICATES_MAX:
        raise AuthorityError(f"{len(found)} certificates, expected at most {CERTIFICATES_MAX}")
    return found


def _key(pem: bytes) -> Key:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AuthorityError(f"the key cannot be read as PEM: {error}") from error
    if not isinstance(key, Key):
        raise AuthorityError(
            f"the key is a {type(key).__name__}, expected an elliptic curve, RSA or Ed25519"
        )
    return key


def _written(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
