"""Connections without a good token at a heartbeat server, in a process of their own.

Each sends a head that lacks a token, one with a forged token, or half of one, then a byte a second;
when it is cut off it connects again at once. Arguments: port, source address, how many. Prints a
line once all have connected, and stops at the end of its input.
"""

from __future__ import annotations

import errno
import select
import socket
import sys
import time

IP_BIND_ADDRESS_NO_PORT = 24
DRIP_S = 1.0
FORGED = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleSJ9.e30." + "A" * 86
HEADS = (
    b"POST /v1/beat HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n{",
    b"POST /v1/beat HTTP/1.1\r\nAuthorization: Bearer %s\r\nContent-Length: 300\r\n\r\n{"
    % FORGED.encode(),
    b"POST /v1/beat HTTP/1.1\r\nHost: x\r\nX-Slow: ",
)


class Strangers:
    """So many connections from one address."""

    def __init__(self, port: int, source: str, count: int) -> None:
        self._address = "127.0.0.1", port
        self._source = source
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._count = count
        self.connected = 0
        self.cut = 0

    def turn(self) -> None:
        """Connect again those that were cut off, and send the first bytes of those that are new."""
        for _ in range(min(256, self._count - len(self._sockets))):
            self._connect()
        for file, event in self._poll.poll(0.01, 1024):
            connection = self._sockets[file]
            try:
                if event & select.EPOLLOUT:
                    connection.send(HEADS[self.connected % len(HEADS)])
                    self.connected += 1
                    self._poll.modify(file, select.EPOLLIN)
                elif not connection.recv(4096) or event & select.EPOLLHUP:
                    self._close(file)
            except OSError:
                self._close(file)

    def drip(self) -> None:
        """A byte of each."""
        for file, connection in [*self._sockets.items()]:
            try:
                connection.send(b"x")
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOTCONN):
                    self._close(file)

    def _connect(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        # A reset instead of a minute in TIME_WAIT: the ports would not last.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.bind((self._source, 0))
        connection.connect_ex(self._address)
        self._sockets[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _close(self, file: int) -> None:
        self.cut += 1
        self._poll.unregister(file)
        self._sockets.pop(file).close()


def main() -> None:
    strangers = Strangers(int(sys.argv[1]), sys.argv[2], count := int(sys.argv[3]))
    dripped_s, said, stop = time.monotonic(), False, select.poll()
    stop.register(sys.stdin, select.POLLIN)
    while not stop.poll(0):
        strangers.turn()
        if time.monotonic() - dripped_s > DRIP_S:
            strangers.drip()
            dripped_s = time.monotonic()
        if not said and strangers.connected >= count:
            print("there", flush=True)
            said = True
    print(f"{strangers.connected} connected, {strangers.cut} cut off", flush=True)


if __name__ == "__main__":
    main()
