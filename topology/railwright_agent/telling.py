"""The operator is told what this machine shows of its inside: when it changes, and now and then.

It is told again though nothing changed, as an operator that begins knows nothing. Who it is of is
not in what is sent: the token says on which node this runs.
"""

from __future__ import annotations

import http.client
import json
import random
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright_agent import inside
from railwright_agent.inside import Given
from railwright_agent.rates import Kept
from railwright_topology.sources import insides
from railwright_topology.sources.insides import Document

PATH = "/v1/inside"
TIMEOUT_S = 10.0
LOOK_S = 60.0
"""Between two looks at the machine: cables and links come and go."""
TELL_EVERY = 3
"""Of so many looks one is told though nothing changed. 5,000 agents are 28 requests a second."""
AGAIN_S = 5.0
AGAIN_S_MAX = 60.0
REASON_BYTES_MAX = 400
ANSWER_BYTES_MAX = 4096

Json = dict[str, Any]


class TellingError(Exception):
    """Why nothing can ever be told, as a sentence."""


class RefusedError(Exception):
    """What kept the operator from taking it now."""


@dataclass(frozen=True, slots=True)
class Call:
    """The operator wants the agent to stand by, at the address of a rail in these ``networks`` or
    at ``host``, from which it spoke to the operator."""

    host: str
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Teller:
    """Where the operator listens, the file that the kubelet keeps a fresh token in, and where this
    machine is looked at."""

    operator: str
    token_file: Path
    given: Given

    def tell(self, document: str) -> Call | None:
        """Raises RefusedError where it is not taken, TellingError where it cannot be sent at all.
        Who is to stand by for errands gets a call."""
        answer, host = self._post(PATH, document.encode(), TIMEOUT_S)
        if answer.get("standBy") is not True:
            return None
        networks = answer.get("networks")
        return Call(host, tuple(map(str, networks)) if isinstance(networks, list) else ())

    def ask(self, path: str, message: Json, deadline_s: float) -> Json:
        """What the operator answers. Raises RefusedError."""
        return self._post(path, json.dumps(message).encode(), deadline_s)[0]

    def _post(self, path: str, body: bytes, deadline_s: float) -> tuple[Json, str]:
        """The answer, and from which address it was asked for.

        A connection for each: the next may reach the replica that leads by then.
        """
        connection = _connection(self.operator, deadline_s)
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", path, body, headers)
            host = str(connection.sock.getsockname()[0])
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RefusedError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            reason = answer[:REASON_BYTES_MAX].decode(errors="replace")
            raise RefusedError(f"{response.status} {reason!r}")
        return _object(answer), host


def _object(answer: bytes) -> Json:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise RefusedError("the answer is no JSON") from error
    if not isinstance(found, dict):
        raise RefusedError("the answer is no JSON object")
    return found


def _connection(operator: str, deadline_s: float) -> http.client.HTTPConnection:
    try:
        parts = urllib.parse.urlsplit(operator)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise TellingError(f"--operator {operator!r}: expected http://ADDRESS:PORT")
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return kind(host, port, timeout=deadline_s)


def run(
    teller: Teller,
    *,
    on_call: Callable[[Call, Document], object],
    pause: Callable[[float], object],
    rng: random.Random,
    say: Callable[[str], object],
    rates: Kept | None = None,
) -> None:
    """Look, tell, and ``pause`` for some seconds, for ever. Pauses are spread: agents start
    together. ``rates`` are told too, if it is given. Where the operator calls, ``on_call`` gets
    what was told too."""
    told, looks, failures = "", 0, 0
    while True:
        seen = inside.gather(teller.given)
        # What is seen does not wait for what takes a minute to measure.
        document = insides.written(rates.beside(seen) if rates and told else seen)
        looks += 1
        if document != told or looks >= TELL_EVERY:
            try:
                call = teller.tell(document)
            except RefusedError as refused:
                say(f"not told: {refused}")
                failures += 1
                pause(rng.uniform(0.5, 1.5) * min(AGAIN_S_MAX, AGAIN_S * 2 ** min(failures, 8) / 2))
                continue
            told, looks, failures = document, 0, 0
            if call is not None:
                on_call(call, seen)
        pause(rng.uniform(0.5, 1.5) * LOOK_S)
