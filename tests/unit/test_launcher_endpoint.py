"""What the launcher's side of HTTP puts on the network."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

from railwright import endpoint, protocol

ANSWER = b'{"order":"continue","interval_s":5}'
DEADLINE_S = 10.0
DATA_SEGMENTS_IN_AT = 152
"""Where tcp_info has tcpi_data_segs_in."""


def test_message_arrives_in_one_segment(tmp_path: Path) -> None:
    """The operator wakes once for a head and its body, on a new connection and on a kept one."""
    token = tmp_path / "token"
    token.write_text("t" * 1000)
    heartbeats = [
        protocol.Heartbeat(protocol.Member("job", 1, 0), n, running=1, exited=0) for n in range(2)
    ]
    segments: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(DEADLINE_S)
                for heartbeat in heartbeats:
                    data = b""
                    while not data.endswith(protocol.encode(heartbeat)):
                        data += connection.recv(65_536)
                    segments.append(_segments(connection))
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(ANSWER)}\r\n\r\n"
                    connection.sendall(head.encode() + ANSWER)

        server = threading.Thread(target=serve)
        server.start()
        operator = endpoint.Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", token)
        answers = [
            operator.post("/v1/beat", heartbeat, kind=protocol.HeartbeatAnswer)
            for heartbeat in heartbeats
        ]
        server.join(DEADLINE_S)
        operator.close()
    assert [answer.interval_s for answer in answers] == [5, 5]
    assert segments == [1, 2]


def _segments(connection: socket.socket) -> int:
    """How many segments with data have come."""
    size = DATA_SEGMENTS_IN_AT + 4
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    return int(struct.unpack_from("I", info, DATA_SEGMENTS_IN_AT)[0])
