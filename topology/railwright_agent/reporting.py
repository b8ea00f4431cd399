"""Report the hardware of this machine to the controllers: when it changes, and now and then.

An unchanged report is repeated, as controllers that begin have none. The report does not name its
node: the token does. `__main__` calls it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import ssl
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright_agent import hardware
from railwright_agent.benchmark import BenchmarkSchedule
from railwright_agent.hardware import HardwareSources
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

PATH = "/v1/hardware"
TIMEOUT_S = 10.0
CONNECT_S = 3.0
READ_S = 60.0
"""Between two readings of the hardware: cables and links come and go."""
REPORT_EVERY = 3
"""Of so many readings one is reported without a change. 5,000 agents are 28 requests a second."""
AGAIN_S = 5.0
AGAIN_S_MAX = 60.0
REASON_BYTES_MAX = 400
ANSWER_BYTES_MAX = 4096

Json = dict[str, Any]


class ControllersUrlError(Exception):
    """Why no report can ever be sent, as a sentence."""


class ReportRefusedError(Exception):
    """Why the controllers did not take a report now."""


@dataclass(frozen=True, slots=True)
class PollRequest:
    """The controllers request that the agent polls for probe tasks, and answers probes at the
    address of a rail in these ``networks``, or at ``host``, from which it reached them."""

    host: str
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllersClient:
    """Where the controllers listen, the file that the kubelet keeps a fresh token in, where this
    machine's hardware is read, and with an https URL the file with the authorities (PEM) of their
    certificates."""

    controllers: str
    token_file: Path
    sources: HardwareSources
    authorities_file: Path | None = None

    def report(self, document: str) -> PollRequest | None:
        """Send a report; returns the controllers' poll request, if any. Raises ReportRefusedError
        if it is not taken, ControllersUrlError if it cannot be sent at all."""
        answer, host = self._post(PATH, document.encode(), TIMEOUT_S)
        if answer.get("poll") is not True:
            return None
        networks = answer.get("networks")
        return PollRequest(host, tuple(map(str, networks)) if isinstance(networks, list) else ())

    def post(self, path: str, message: Json, deadline_s: float) -> Json:
        """What the controllers answer. Raises ReportRefusedError."""
        return self._post(path, json.dumps(message).encode(), deadline_s)[0]

    def _post(self, path: str, body: bytes, deadline_s: float) -> tuple[Json, str]:
        """The answer, and from which address the Service was reached.

        A connection for each: the next may reach the replica that leads by then. One that does not
        lead redirects to it. With TLS both must have a certificate for the host of the URL.
        """
        service = _address(self.controllers)
        try:
            response, answer, host = self._sent(service, path, body, deadline_s)
            if response.status == http.client.TEMPORARY_REDIRECT:
                leader = _redirected(response.getheader("Location", ""))
                response, answer, _ = self._sent(leader, path, body, deadline_s)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ReportRefusedError(f"{type(error).__name__}: {error}") from error
        if response.status != http.client.OK:
            reason = answer[:REASON_BYTES_MAX].decode(errors="replace")
            raise ReportRefusedError(f"{response.status} {reason!r}")
        return _object(answer), host

    def _sent(
        self, address: tuple[str, int | None], path: str, body: bytes, deadline_s: float
    ) -> tuple[http.client.HTTPResponse, bytes, str]:
        """The response, its body, and from which address the message was sent."""
        connection = http.client.HTTPConnection(*address, timeout=CONNECT_S)
        with contextlib.closing(connection):
            token = self.token_file.read_text(encoding="utf-8").strip()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            parts = urllib.parse.urlsplit(self.controllers)
            context = self._context() if parts.scheme == "https" else None
            connection.connect()
            if context:
                connection.sock = context.wrap_socket(
                    connection.sock, server_hostname=parts.hostname
                )
            connection.sock.settimeout(deadline_s)
            host = str(connection.sock.getsockname()[0])
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response, response.read(ANSWER_BYTES_MAX), host

    def _context(self) -> ssl.SSLContext:
        """It trusts the authorities in the file alone, which is read each time: the kubelet
        replaces it."""
        if self.authorities_file is None:
            raise ControllersUrlError(
                f"--controllers {self.controllers!r}: expected --authorities-file beside it"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(self.authorities_file)
        return context


def _object(answer: bytes) -> Json:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise ReportRefusedError("the answer is no JSON") from error
    if not isinstance(found, dict):
        raise ReportRefusedError("the answer is no JSON object")
    return found


def _address(controllers: str) -> tuple[str, int | None]:
    try:
        parts = urllib.parse.urlsplit(controllers)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise ControllersUrlError(f"--controllers {controllers!r}: expected https://ADDRESS:PORT")
    return host, port


def _redirected(location: str) -> tuple[str, int]:
    """The host and port of a URL. Raises ValueError."""
    parts = urllib.parse.urlsplit(location)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"a redirect to {location!r}, expected a host and a port")
    return parts.hostname, parts.port


def run(
    controllers: ControllersClient,
    *,
    on_poll_request: Callable[[PollRequest, Document], object],
    rng: random.Random,
    log: Callable[[str], object],
    pause: Callable[[float], object] = time.sleep,
    benchmark: BenchmarkSchedule | None = None,
) -> None:
    """Read the hardware, report it, and ``pause`` for some seconds, for ever. Pauses are spread, as
    agents start together. ``benchmark`` adds device rates. ``on_poll_request`` gets the hardware
    that was reported too."""
    reported, reads, failures = "", 0, 0
    while True:
        found = hardware.gather(controllers.sources)
        # The first report does not wait for a benchmark of a minute.
        document = hardware_documents.written(
            benchmark.add_to(found) if benchmark and reported else found
        )
        reads += 1
        if document != reported or reads >= REPORT_EVERY:
            try:
                request = controllers.report(document)
            except ReportRefusedError as refused:
                log(f"report failed: {refused}")
                failures += 1
                pause(rng.uniform(0.5, 1.5) * min(AGAIN_S_MAX, AGAIN_S * 2 ** min(failures, 8) / 2))
                continue
            reported, reads, failures = document, 0, 0
            if request is not None:
                on_poll_request(request, found)
        pause(rng.uniform(0.5, 1.5) * READ_S)
