"""Reserve ports of the kernel for the lifetime of a testbed.

A reservation is a socket that is bound and does not listen. The kernel gives its port to no other
socket, but a server that sets SO_REUSEADDR (every Go program does) may listen on it. So a server
can be stopped and started again on the same port without losing it in between.
"""

from __future__ import annotations

import socket


class PortReservation:
    """One TCP port on one address."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((address, 0))
        self.port: int = self._socket.getsockname()[1]

    def __repr__(self) -> str:
        return f"PortReservation({self.port})"

    def release(self) -> None:
        self._socket.close()
