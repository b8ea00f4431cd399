"""What launchers' heartbeats cost the operator, and whether strangers can delay them.

The server runs in a process of its own, over the state of gangs of 1,024 launchers; load comes from
other processes. CPU is the process time of the server. Four runs: 2,000 launchers; 16,384; all of
these at a new leader, through one address; and 2,000 beside 4,096 strangers from the launchers' own
address and 4,096 from another, while a tenth of the launchers connects anew for each heartbeat.
Progress goes to stderr, one JSON object to stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright import wire
from railwright_operator.heartbeats.interval import beat_interval_s
from worlds.tokens import SigningKey

LAUNCHERS, MOST_LAUNCHERS = 2_000, 16_384
STRANGERS = 4_096
OWN_ADDRESS, OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"
SETTLE_S = 10.0
"""For all launchers to connect and be verified, which comes once in a leader's life."""

FLOOD_S = 30.0
"""Of heartbeats beside strangers, and of those at a new leader."""

RENEWING = 0.1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="over which CPU is measured")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "key.pem", seconds)
        usual = bench.steady(LAUNCHERS)
        most = bench.steady(MOST_LAUNCHERS)
        figures = {
            "launchers": LAUNCHERS,
            "cpu_share": usual["cpu_share"],
            "beat_cpu_us": usual["beat_cpu_us"],
            "launchers_16384_cpu_share": most["cpu_share"],
            "failover_all_accepted_seconds": bench.failover(MOST_LAUNCHERS),
            "valid_beat_p99_seconds_under_flood": bench.flooded(LAUNCHERS),
        }
    print(json.dumps(figures))


@dataclass(frozen=True, slots=True)
class Server:
    """The server's process."""

    process: subprocess.Popen[str]

    def cpu_s(self) -> float:
        """Its process time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class Bench:
    """The runs. ``key`` is a file that servers and launchers share."""

    def __init__(self, key: Path, seconds: float) -> None:
        self._key = key
        self._seconds = seconds
        SigningKey("key").write(key)

    def steady(self, launchers: int) -> Figures:
        """CPU of the server while all launchers are connected."""
        say(f"{launchers} launchers")
        with self._server(launchers) as (server, port):
            load = self._load(port, launchers, SETTLE_S + self._seconds + 1.0)
            _begin(load)
            _pass(SETTLE_S)
            started_s, before_s = time.monotonic(), server.cpu_s()
            _pass(self._seconds)
            wall_s, cpu_s = time.monotonic() - started_s, server.cpu_s() - before_s
            found = _ended(load)
        assert found["accepted"] == launchers, found
        beats = wall_s * launchers / beat_interval_s(launchers)
        figures = {
            "cpu_share": round(cpu_s / wall_s, 3),
            "beat_cpu_us": round(cpu_s / beats * 1e6, 1),
        }
        say(f"  {figures}; {found}")
        return figures

    def failover(self, launchers: int) -> float:
        """Seconds from when a new leader listens until it has accepted every launcher."""
        say(f"{launchers} launchers at a new leader, from one address")
        port = _free_port()
        load = self._load(port, launchers, FLOOD_S)
        _begin(load)
        _pass(2 * wire.BEAT_INTERVAL_S)
        with self._server(launchers, port=port):
            listening_s = time.time()
            found = _ended(load)
        assert found["accepted"] == launchers, found
        say(f"  {found}")
        return round(float(found["last_accepted_s"]) - listening_s, 2)

    def flooded(self, launchers: int) -> float:
        """The 99th percentile of the time that a valid heartbeat takes, on kept connections or on
        new ones, whichever is longer."""
        say(f"{launchers} launchers beside 2 x {STRANGERS} strangers")
        with self._server(launchers) as (_, port):
            load = self._load(port, launchers, FLOOD_S, renewing=RENEWING)
            strangers = [
                _process("worlds.strangers", port, source, STRANGERS)
                for source in (OWN_ADDRESS, OTHER_ADDRESS)
            ]
            for each in strangers:
                assert _line(each) == "there"
            _begin(load)
            found = _ended(load)
            for each in strangers:
                _begin(each)
                say(f"  strangers: {_line(each)}")
                each.wait(timeout=10)
        assert found["accepted"] == launchers, found
        say(f"  {found}")
        return round(max(float(found["kept_p99_s"]), float(found["new_p99_s"])), 3)

    @contextlib.contextmanager
    def _server(self, launchers: int, *, port: int = 0) -> Iterator[tuple[Server, int]]:
        port = port or _free_port()
        process = _process("bench.heartbeat_server", self._key, launchers, port)
        assert _line(process) == "listening"
        try:
            yield Server(process), port
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)

    def _load(
        self, port: int, launchers: int, seconds: float, *, renewing: float = 0.0
    ) -> subprocess.Popen[str]:
        load = _process(
            "bench.heartbeat_load",
            self._key,
            port,
            f"--launchers={launchers}",
            f"--seconds={seconds}",
            f"--renewing={renewing}",
        )
        assert _line(load) == "ready"
        return load


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def _pass(seconds: float) -> None:
    """Let time go by, which is what is measured over."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(left_s)


def _process(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _ended(load: subprocess.Popen[str]) -> Figures:
    found: Figures = json.loads(_line(load))
    load.wait(timeout=30)
    return found


def _free_port() -> int:
    with socket.create_server((OWN_ADDRESS, 0)) as listener:
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
