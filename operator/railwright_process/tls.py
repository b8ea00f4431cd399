"""TLS of a server: an authority that a Secret keeps, and one connection's encryption.

The Secret is part of the installation and empty at first. The leader fills it once; every replica
signs a certificate of its own, which it keeps in memory and renews each day, and after the
clock was set. Whoever administers the cluster may store an authority of their own there instead.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from railwright_kube import errors, paths
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_process import authority
from railwright_process.authority import Authority, Signed

logger = logging.getLogger(__name__)

REFRESH_S = 60.0
"""Between two readings of the Secret: how long a replaced authority stays in use."""

RENEW_S = 24 * 3600.0
CLOCK_STEP_S = 3600.0
"""By how much the wall clock may be set while a certificate is used. It is valid from a day before
it was signed until a week after, so a larger step could end its validity."""

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL."""

FIRST_S = Backoff(0.25, 10.0)
"""Between readings until there is a certificate: a standby waits for what the leader writes."""

PLAIN_BYTES_MAX = 64 * 1024
CERTIFICATE, KEY, TRUSTED = "tls.crt", "tls.key", "ca.crt"
"""In the Secret, by the names that other programs use."""

UNUSABLE = (
    errors.RequestFailed,
    ValueError,
    OSError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What is raised for a Secret that cannot be read, or an authority that cannot sign."""


@dataclass(eq=False, repr=False)
class Certificates:
    """The certificates of a server that clients reach at this URL, signed by the authority in the
    Secret ``name``; nothing is read, and nothing encrypted, if it is an http URL. ``may_write`` in
    a leader. ``wall_clock`` is seconds since the epoch, ``clock`` is monotonic seconds."""

    api: Api
    url: str
    _: KW_ONLY
    namespace: str
    name: str
    may_write: Callable[[], bool]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    rng: Callable[[], Random]

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        self._host = parts.hostname or ""
        self._path = paths.secret(self.namespace, self.name)
        self.encrypts = parts.scheme == "https"
        self._authority: Authority | None = None
        self._signed_s = 0.0
        self._signed_wall_s = 0.0
        self._context: ssl.SSLContext | None = None
        self._available = asyncio.Event()
        self.problem = f"{self._path} has not been read yet" if self.encrypts else ""
        """Why there is no certificate, or no newer one; empty if all is well."""
        if not self.encrypts:
            self._available.set()

    def context(self) -> ssl.SSLContext | None:
        """For new connections; None until there is a certificate."""
        return self._context

    def authorities(self) -> str:
        """What a client needs to verify this server, as PEM; empty until there is a certificate."""
        return "" if self._authority is None else self._authority.trusted.decode()

    async def wait_available(self) -> None:
        """Wait for the first certificate."""
        await self._available.wait()

    async def run(self) -> None:
        """Read the Secret again and again, until cancelled."""
        tries, rng = 0, self.rng()
        while True:
            await self.refresh()
            wait_s = REFRESH_S
            if self._context is None:
                wait_s = FIRST_S.delay_s(tries, rng)
                tries += 1
            await asyncio.sleep(wait_s)

    async def refresh(self) -> None:
        """Read the Secret, fill it if it is empty and this process leads, and renew the
        certificate when it is due."""
        try:
            found = await self._stored()
            problem = "" if found else f"{self._path} is empty; the leader fills it"
        except UNUSABLE as error:
            found, problem = None, f"{self._path}: {error}"
        try:
            # The one in use goes on while the Secret cannot be read.
            if used := found or self._authority:
                self._renew(used)
        except UNUSABLE as error:
            problem = f"{self._path}: {error}"
        self._note(problem)

    @property
    def missing(self) -> str:
        """Why there is no certificate; empty if there is one."""
        return self.problem if self._context is None else ""

    def _renew(self, found: Authority) -> None:
        """Sign a certificate if it is due. Raises what is in ``UNUSABLE`` for an authority that
        clients do not accept, such as one with a short key or of another root."""
        now_s, wall_s = self.clock(), self.wall_clock()
        age_s = now_s - self._signed_s
        step_s = wall_s - self._signed_wall_s - age_s
        if found == self._authority and age_s < RENEW_S and abs(step_s) <= CLOCK_STEP_S:
            return
        context = server_context(authority.sign(found, self._host, wall_s))
        _verify(context, found.trusted.decode(), self._host)
        self._context, self._authority = context, found
        self._signed_s, self._signed_wall_s = now_s, wall_s
        self._available.set()
        logger.info("certificate signed", extra={"host": self._host})

    async def _stored(self) -> Authority | None:
        """The authority in the Secret; None if there is none yet and this process may not write.
        Raises what is in ``UNUSABLE``."""
        secret = await self.api.get(self._path)
        data = secret.get("data") or {}
        if data.get(CERTIFICATE) or data.get(KEY):
            return _read(data, self.wall_clock())
        if not self.may_write():
            return None
        # The one in use is written again: processes that run trust it already.
        made = self._authority or authority.new(self._host, self.wall_clock())
        values = {CERTIFICATE: made.certificate, KEY: made.key, TRUSTED: made.trusted}
        text = {name: base64.b64encode(value).decode() for name, value in values.items()}
        await self.api.replace(self._path, {**secret, "data": {**data, **text}})
        logger.info("authority stored", extra={"secret": self._path})
        return made

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("no new certificate", extra={"problem": problem})
        self.problem = problem


class TlsConnection:
    """The server's side of one TLS connection: what arrives, decrypted, and what is sent.

    asyncio's own calls a protocol only after the handshake, so that strangers in it would count
    nowhere, and keeps 256 KiB for each connection."""

    __slots__ = ("_arrived", "_leaving", "_session")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._arrived, self._leaving, server_side=True)

    def decrypt(self, data: memoryview) -> bytes:
        """Decrypt received bytes; empty during the handshake. Raises ssl.SSLError."""
        self._arrived.write(data)
        plain = bytearray()
        try:
            # The first read makes the handshake too.
            while part := self._session.read(PLAIN_BYTES_MAX):
                plain += part
        except ssl.SSLWantReadError:
            pass
        return bytes(plain)

    def encrypt(self, plain: bytes) -> bytes:
        """Encrypt bytes to send. Raises ssl.SSLError."""
        self._session.write(plain)
        return self._leaving.read()

    def replies(self) -> bytes:
        """Bytes that TLS itself sends: its part of the handshake, and alerts."""
        return self._leaving.read()


def server_context(signed: Signed) -> ssl.SSLContext:
    """For a server with this certificate. The private key touches no file system."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, signed.chain + signed.key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


def _verify(context: ssl.SSLContext, trusted: str, host: str) -> None:
    """Raises ssl.SSLError if a client that trusts these authorities refuses the server, whatever
    the clock of this machine is: ``authority.read`` checks when they are valid."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.verify_flags |= NO_CHECK_TIME
    trusting.load_verify_locations(cadata=trusted)
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = (
        trusting.wrap_bio(arriving, leaving, server_hostname=host),
        TlsConnection(context),
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    server.decrypt(memoryview(leaving.read()))
    arriving.write(server.replies())
    client.do_handshake()


def _read(data: Mapping[str, Any], now_s: float) -> Authority:
    certificate, key, trusted = (
        base64.b64decode(data.get(name) or "") for name in (CERTIFICATE, KEY, TRUSTED)
    )
    return authority.read(certificate, key, trusted, now_s=now_s)
