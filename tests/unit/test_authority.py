"""Authorities and what they sign, verified by OpenSSL as clients do."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from fixtures.authorities import pem, stored
from railwright_process import authority, tls
from railwright_process.authority import Authority, AuthorityError, Key

HOST = "railwright-operator.railwright-system"
NOW_S = datetime.now(UTC).timestamp()
DAY_S = 86_400.0


def shake_hands(
    made: Authority, host: str, *, at_s: float = NOW_S, asks: str = "", strict: bool = True
) -> None:
    """Raises ssl.SSLError if a client that trusts the authority refuses what it signed."""
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=made.trusted.decode())
    if strict:
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    client = context.wrap_bio(arriving, leaving, server_hostname=asks or host)
    server = tls.TlsConnection(tls.server_context(authority.sign(made, host, at_s)))
    for _ in range(4):
        try:
            client.do_handshake()
            return
        except ssl.SSLWantReadError:
            server.decrypt(memoryview(leaving.read()))
            arriving.write(server.replies())
    raise AssertionError("no end of the handshake")


def read(made: Authority) -> Authority:
    return authority.read(made.certificate, made.key, made.trusted, now_s=NOW_S)


@pytest.mark.parametrize("host", [HOST, "10.0.0.1", "fd00::1", "a" * 60 + "." + "b" * 60])
def test_own_authority_signs_for_its_host_alone(host: str) -> None:
    made = authority.new(host, NOW_S)
    assert read(made) == made
    shake_hands(made, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(made, host, asks="railwright-controllers.railwright-system")


@pytest.mark.parametrize("days", [-9.0, 2.0])
def test_certificate_is_of_use_for_a_week(days: float) -> None:
    made = authority.new(HOST, NOW_S + days * DAY_S)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"expired|not yet valid"):
        shake_hands(made, HOST, at_s=NOW_S + days * DAY_S)
    shake_hands(authority.new(HOST, NOW_S), HOST, at_s=NOW_S - 6 * DAY_S)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["P-256", "P-384", "RSA", "Ed25519"],
)
def test_authority_of_a_site_may_have_any_usual_key(key: Key) -> None:
    shake_hands(read(stored(key)), HOST, strict=False)


def test_nothing_but_certificates_is_given_to_pods() -> None:
    made = stored(ec.generate_private_key(ec.SECP256R1()))
    mixed = made.key + "ein Schlüssel\n".encode("latin-1") + made.trusted
    found = read(Authority(made.certificate, made.key, mixed))
    assert found.trusted == made.trusted
    assert "PRIVATE" not in repr(found) + repr(authority.sign(found, HOST, NOW_S))
    with pytest.raises(AuthorityError, match="9 certificates, expected at most 8"):
        read(Authority(made.certificate, made.key, made.trusted * 9))


def test_authority_without_an_identifier_is_found_by_its_key() -> None:
    made = read(stored(ec.generate_private_key(ec.SECP256R1()), has_identifier=False))
    certificate = x509.load_pem_x509_certificate(authority.sign(made, HOST, NOW_S).chain)
    stated = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    key = x509.load_pem_x509_certificate(made.certificate).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert stated == x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def test_authority_that_cannot_sign_is_refused_with_the_reason() -> None:
    key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    good = stored(key)
    cases = {
        "is not that of an authority": stored(key, is_authority=False),
        r"expired at \d{4}-": stored(key, days=-1),
        r"is valid from \d{4}-\d\d-\d\dT\d\d:\d\dZ on": authority.new(HOST, NOW_S + 3 * DAY_S),
        "the key is not that of the certificate": Authority(
            good.certificate, pem(other), good.trusted
        ),
        "the key cannot be read": Authority(good.certificate, b"none", good.trusted),
        "a certificate cannot be read": Authority(b"none", good.key, good.trusted),
        "certificate cannot be read": Authority(good.certificate, good.key, b"none"),
        "expected an elliptic curve": Authority(
            good.certificate, pem(dsa.generate_private_key(2048)), good.trusted
        ),
    }
    for reason, made in cases.items():
        with pytest.raises(AuthorityError, match=reason):
            read(made)
