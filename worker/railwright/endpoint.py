"""The launcher's HTTP client: one message, one response, within a deadline.

The URL is that of a Service. A replica behind it that does not lead redirects to the leader.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.parse
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from railwright import pacing, profile, protocol

Reply = TypeVar("Reply")


class UnreachableError(Exception):
    """There was no readable response: the caller retries later."""

    is_final = False


class RefusedError(Exception):
    """The operator responded with another status than 200."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}".strip())
        self.status = status
        self.reason = reason

    @property
    def is_final(self) -> bool:
        """Whether a retry of the same message would get the same response."""
        return self.status in (400, 409, 413)


class Endpoint:
    """One connection to the operator, kept open between messages; for one thread.

    A redirect is followed once for a message, and the connection to the leader is kept; the one
    after it begins at the URL again. A URL with a path leads to a proxy, past which no redirect is
    followed. ``token_file`` is read for every message, because the kubelet replaces it.

    With an https URL both replicas must show a certificate for its host, signed by one of the
    ``authorities`` (PEM). Raises ValueError if those cannot be read.
    """

    def __init__(self, url: str, token_file: Path, authorities: str = "") -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname is not None, url
        self._host = parts.hostname
        self._tls = _context(authorities) if parts.scheme == "https" else None
        self._service = self._connection_to(self._host, parts.port)
        self._connection = self._service
        self._prefix = parts.path.rstrip("/")
        self._follows = not self._prefix
        self._token_file = token_file

    def post(
        self,
        path: str,
        message: protocol.Message | profile.Handover,
        *,
        kind: type[Reply],
        timeout_s: float = pacing.TIMEOUT_S,
    ) -> Reply:
        """Send a message; return the response of the given kind. Raises UnreachableError or
        RefusedError.

        ``timeout_s`` bounds each wait for the network.
        """
        body = protocol.encode(message)
        try:
            token = self._token_file.read_text().strip()
            status, data = self._exchange(path, body, token=token, timeout_s=timeout_s)
            if status == HTTPStatus.TEMPORARY_REDIRECT and self._follows:
                status, data = self._once(path, body, token=token, timeout_s=timeout_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise UnreachableError(f"{type(error).__name__}: {error}") from error
        if status in (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.SERVICE_UNAVAILABLE):
            self.close()
        if status != HTTPStatus.OK:
            raise RefusedError(status, _reason(data))
        try:
            return protocol.decode(kind, data)
        except protocol.ProtocolError as error:
            raise UnreachableError(f"answer to {path}: {error}") from error

    def close(self) -> None:
        """Close the connection; the next message opens a new one, to the URL."""
        self._connection.close()
        self._connection = self._service

    def _exchange(
        self, path: str, body: bytes, *, token: str, timeout_s: float
    ) -> tuple[int, bytes]:
        kept = self._connection.sock is not None
        if not kept:
            self.close()
        try:
            return self._once(path, body, token=token, timeout_s=timeout_s)
        except (ConnectionError, http.client.HTTPException):
            if not kept:
                raise
        # The operator had closed the idle connection. Each message may be repeated harmlessly.
        self.close()
        return self._once(path, body, token=token, timeout_s=timeout_s)

    def _once(self, path: str, body: bytes, *, token: str, timeout_s: float) -> tuple[int, bytes]:
        self._connection.timeout = timeout_s
        if self._connection.sock is None:
            self._connection.connect()
        self._connection.sock.settimeout(timeout_s)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        # Head and body in one segment: the operator wakes once for each message.
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self._connection.request("POST", self._prefix + path, body, headers)
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        response = self._connection.getresponse()
        data = response.read(protocol.MESSAGE_BYTES_MAX + 1)
        if not response.isclosed():
            self.close()
        if response.status == HTTPStatus.TEMPORARY_REDIRECT and self._follows:
            self._connection.close()
            self._connection = self._redirected(response.getheader("Location", ""))
        return response.status, data

    def _redirected(self, location: str) -> http.client.HTTPConnection:
        """A connection to the host and port of a URL, not open yet. Raises ValueError."""
        parts = urllib.parse.urlsplit(location)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"a redirect to {location!r}, expected a host and a port")
        return self._connection_to(parts.hostname, parts.port)

    def _connection_to(self, address: str, port: int | None) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(address, port, timeout=pacing.TIMEOUT_S)
        return _VerifiedConnection(address, port, host=self._host, context=self._tls)


class _VerifiedConnection(http.client.HTTPSConnection):
    """A connection to an address whose certificate must be for ``host``."""

    def __init__(
        self, address: str, port: int | None, *, host: str, context: ssl.SSLContext
    ) -> None:
        super().__init__(address, port, timeout=pacing.TIMEOUT_S, context=context)
        self._expected, self._verifying = host, context

    def connect(self) -> None:
        """Open it. Raises OSError, also for a certificate of another host."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._verifying.wrap_socket(self.sock, server_hostname=self._expected)


def _context(authorities: str) -> ssl.SSLContext:
    """It trusts these authorities alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=authorities)
    except ssl.SSLError as error:
        raise ValueError(f"the authorities of the operator cannot be read: {error}") from error
    return context


def _reason(data: bytes) -> str:
    """The reason in the body of a refusal, else its text."""
    try:
        return protocol.decode(protocol.Refusal, data).error
    except protocol.ProtocolError:
        return data[:200].decode("utf-8", "replace").strip()
