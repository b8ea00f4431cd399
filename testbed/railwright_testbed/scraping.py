"""Read the metrics of a process as a Prometheus does: with a token, from a server whose certificate
is verified."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from typing import Self

from railwright_testbed import waiting
from railwright_testbed.control_plane import ControlPlane

READER = "railwright-metrics"
"""The account that may read metrics, and the Secret with its token."""

TOKEN, TRUSTED = "token", "ca.crt"
NAMESPACE = "railwright-system"
STORED_DEADLINE_S = 20.0
ANSWER_DEADLINE_S = 15.0


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads metrics of a process whose URL has this host, and whose certificate is signed by these
    authorities, with this token; empty for none."""

    host: str
    authorities: str
    token: str

    @classmethod
    def of(cls, plane: ControlPlane, process: str, *, host: str) -> Self:
        """With what the Secrets of an installation have."""
        return cls(host, _stored(plane, f"{process}-tls", TRUSTED), _stored(plane, READER, TOKEN))

    def read(self, address: str, port: int) -> tuple[int, str]:
        """The status and the text; 0 without a response."""
        context = ssl.create_default_context(cadata=self.authorities)
        connection = http.client.HTTPConnection(address, port)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            with (
                socket.create_connection((address, port), timeout=ANSWER_DEADLINE_S) as plain,
                context.wrap_socket(plain, server_hostname=self.host) as connection.sock,
                contextlib.closing(connection),
            ):
                connection.request("GET", "/metrics", headers=headers)
                response = connection.getresponse()
                return response.status, response.read().decode()
        except OSError as error:
            return 0, str(error)


def _stored(plane: ControlPlane, secret: str, key: str) -> str:
    """What a Secret has, which is filled after it was created."""

    def found() -> str:
        shown = plane.kubectl("-n", NAMESPACE, "get", "secret", secret, "-o=json")
        return str(json.loads(shown).get("data", {}).get(key, ""))

    what = f"{key} in the Secret {secret}"
    waiting.until(lambda: bool(found()), what, deadline_s=STORED_DEADLINE_S)
    return base64.b64decode(found()).decode()
