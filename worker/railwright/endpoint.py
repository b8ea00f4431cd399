"""The launcher's HTTP client: one message, one response, within a deadline.

The URL is that of a Service, behind which a replica that does not lead redirects to the leader.
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

    A redirect is followed for as long as the replica there accepts messages. ``token_file`` is read
    for every message, because the kubelet replaces it.
    """

    def __init__(self, url: str, token_file: Path) -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname is not None, url
        secure = parts.scheme == "https"
        self._tls = ssl.create_default_context() if secure else None
        port = http.client.HTTPS_PORT if secure else http.client.HTTP_PORT
        self._service = parts.hostname, parts.port or port
        self._leader: tuple[str, int] | None = None
        self._connection = http.client.HTTPConnection(*self._service)
        self._prefix = parts.path.rstrip("/")
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
            if status == HTTPStatus.TEMPORARY_REDIRECT:
                status, data = self._exchange(path, body, token=token, timeout_s=timeout_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            self._leader = None
            raise UnreachableError(f"{type(error).__name__}: {error}") from error
        if status in (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.SERVICE_UNAVAILABLE):
            self._leader = None
        if status != HTTPStatus.OK:
            raise RefusedError(status, _reason(data))
        try:
            return protocol.decode(kind, data)
        except protocol.ProtocolError as error:
            raise UnreachableError(f"answer to {path}: {error}") from error

    def close(self) -> None:
        """Close the connection; the next message opens a new one."""
        self._connection.close()

    def _exchange(
        self, path: str, body: bytes, *, token: str, timeout_s: float
    ) -> tuple[int, bytes]:
        kept = self._connection.sock is not None
        try:
            return self._once(path, body, token=token, timeout_s=timeout_s)
        except (ConnectionError, http.client.HTTPException):
            if not kept:
                raise
        # The operator had closed the idle connection. Each message may be repeated harmlessly.
        self.close()
        return self._once(path, body, token=token, timeout_s=timeout_s)

    def _once(self, path: str, body: bytes, *, token: str, timeout_s: float) -> tuple[int, bytes]:
        if self._connection.sock is None:
            self._connect(timeout_s)
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
        if response.status == HTTPStatus.TEMPORARY_REDIRECT:
            self.close()
            self._leader = _address(response.getheader("Location", ""))
        return response.status, data

    def _connect(self, timeout_s: float) -> None:
        """Connect to the leader if it is known, and verify the name of the Service all the same."""
        connected = socket.create_connection(self._leader or self._service, timeout_s)
        if self._tls is not None:
            connected = self._tls.wrap_socket(connected, server_hostname=self._service[0])
        self._connection.sock = connected


def _address(location: str) -> tuple[str, int]:
    """The host and port of a URL. Raises ValueError."""
    parts = urllib.parse.urlsplit(location)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"a redirect to {location!r}, expected a host and a port")
    return parts.hostname, parts.port


def _reason(data: bytes) -> str:
    """The reason in the body of a refusal, else its text."""
    try:
        return protocol.decode(protocol.Refusal, data).error
    except protocol.ProtocolError:
        return data[:200].decode("utf-8", "replace").strip()
