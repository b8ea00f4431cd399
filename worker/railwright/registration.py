"""The start barrier: register until the operator sends the parameters of all ranks."""

from __future__ import annotations

import logging
import random
import socket
import time
from collections.abc import Callable
from http import HTTPStatus

from railwright import endpoint, environment, pacing, protocol

BACKOFF_S_MAX = 10.0
LOG_INTERVAL_S = 30.0

# Below the kernel's ephemeral ports: none of those can be taken by a connection in between.
PORTS = range(20_000, 30_000)
PORT_TRIES = 64

logger = logging.getLogger(__name__)


class StoppedError(Exception):
    """The operator refuses the start, with the reason."""


def reserve_port(address: str) -> socket.socket:
    """A socket bound to a free port of the address, to be closed when rank 0 is to listen there.

    Raises OSError when the address is not this machine's, or no port is free.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in (*random.sample(PORTS, PORT_TRIES), 0):
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.bind((address, port))
        except OSError:
            bound.close()
            if port == 0:
                raise
        else:
            return bound
    raise AssertionError("the last try returns or raises")


def world(
    pod: environment.Pod,
    operator: endpoint.Endpoint,
    *,
    master_port: int,
    pause: Callable[[float], None],
) -> protocol.WorldInfo:
    """Register until all nodes are registered; without a limit, as the operator may be restarting.

    ``pause`` waits, and may raise to give up. Raises StoppedError, and BadEnvironmentError
    when the operator finds the registration malformed.
    """
    register = protocol.Register(
        member=pod.member,
        address=pod.address,
        master_port=master_port,
        num_processes=pod.num_processes,
    )
    log = _ChangeLog()
    failures, first_s = 0, protocol.REGISTER_INTERVAL_S
    while True:
        try:
            answer = operator.post("/v1/register", register, kind=protocol.Registered)
        except (endpoint.UnreachableError, endpoint.RefusedError) as error:
            if error.is_final:
                raise _end_of(error) from error
            failures += 1
            log.line(f"registration failed: {error}")
        else:
            failures, first_s = 0, answer.interval_s or protocol.REGISTER_INTERVAL_S
            if answer.order is protocol.Order.STOP:
                raise StoppedError("the operator sent a stop order")
            if answer.world is not None and answer.order is protocol.Order.GO:
                return answer.world
            missing = ", ".join(str(node) for node in answer.missing[:20])
            log.line(f"waiting for node ranks {missing}")
        pause(pacing.backoff_s(failures, first_s=first_s, most_s=BACKOFF_S_MAX))


def _end_of(refused: endpoint.UnreachableError | endpoint.RefusedError) -> Exception:
    if isinstance(refused, endpoint.RefusedError) and refused.status == HTTPStatus.CONFLICT:
        return StoppedError(f"the attempt was revoked: {refused.reason}")
    return environment.BadEnvironmentError(f"the operator refused the registration: {refused}")


class _ChangeLog:
    """Logs a line when it changes, and again after a time."""

    def __init__(self) -> None:
        self._last = ""
        self._at_s = 0.0

    def line(self, text: str) -> None:
        now_s = time.monotonic()
        if text != self._last or now_s - self._at_s > LOG_INTERVAL_S:
            logger.info(text)
            self._last, self._at_s = text, now_s
