"""A small client for the API server: JSON over one kept connection, errors with their reason."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from railwright_testbed.errors import TestbedError

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"

# The API server closes connections that were idle for 90 s, and a request may be on its way then.
_IDLE_S_MAX = 60.0
_TRIES_MAX = 10


class ApiError(TestbedError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiClient:
    """One connection to one API server; not for two threads at a time."""

    def __init__(self, url: str, *, ca_file: Path, token: str, timeout_s: float = 30.0) -> None:
        self._host = urlsplit(url).netloc
        self._token = token
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._connection: http.client.HTTPSConnection | None = None
        self._used_s = 0.0

    def __repr__(self) -> str:
        return f"ApiClient({self._host}, {'connected' if self._connection else 'closed'})"

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def post(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body=body)

    def patch(self, path: str, body: Json, *, content_type: str = MERGE_PATCH) -> Json:
        return self.request("PATCH", path, body=body, content_type=content_type)

    def delete(self, path: str) -> Json:
        return self.request("DELETE", path)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Make a request. OSError and HTTPException mean that there was no response.

        It is sent again if the server requires that, as after a new kind was installed.
        """
        content = None if body is None else json.dumps(body).encode()
        status, text, again_s = self._send(method, path, content, content_type)
        for _ in range(_TRIES_MAX - 1):
            if status != http.HTTPStatus.TOO_MANY_REQUESTS or again_s is None:
                break
            time.sleep(again_s)
            status, text, again_s = self._send(method, path, content, content_type)
        if status >= 300:
            raise ApiError(
                status, f"{method} {path} answered {status}: {text.decode(errors='replace')}"
            )
        # Health endpoints answer "ok" and not JSON.
        return dict(json.loads(text)) if text.startswith(b"{") else {}

    def _send(
        self, method: str, path: str, content: bytes | None, content_type: str
    ) -> tuple[int, bytes, float | None]:
        """The status, the body, and the seconds until a retry if the response has them."""
        if time.monotonic() - self._used_s > _IDLE_S_MAX:
            self.close()
        self._used_s = time.monotonic()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, timeout=self._timeout_s, context=self._tls
            )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        try:
            self._connection.request(method, path, body=content, headers=headers)
            response = self._connection.getresponse()
            again = response.getheader("Retry-After")
            return response.status, response.read(), None if again is None else float(again)
        except (OSError, http.client.HTTPException):
            self.close()
            raise


def answers(client: ApiClient, path: str) -> bool:
    """Whether the server is there and content, for waiting loops."""
    try:
        client.get(path)
    except (ApiError, OSError, http.client.HTTPException):
        return False
    return True
