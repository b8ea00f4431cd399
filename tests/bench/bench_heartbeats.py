"""What launchers' heartbeats cost the operator, and whether strangers can delay them.

The server runs in a process of its own, over the state of gangs of 1,024 launchers, on a processor
of its own; load comes from processes on another. CPU is the process time of the server. Phases:

    usual      2,000 launchers
    most       16,384 launchers
    failover   these at a new leader, through one address, after a time without any
    flood      2,000 beside 4,096 strangers from the launchers' own address and 4,096 from another,
               while a tenth of the launchers connects anew for each heartbeat

Each phase prints its figures to stderr as it ends, and one that fails does not stop those after it.
At the end one JSON object goes to stdout; what was not measured in it is null.
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

from bench.heartbeat_load import GANG_EVERY_S
from fixtures import certificates
from fixtures.heartbeat_gangs import GANG
from fixtures.tokens import SigningKey

LAUNCHERS, MOST_LAUNCHERS = 2_000, 16_384
STRANGERS = 4_096
OWN_ADDRESS, OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"
SETTLE_S = 10.0
"""After the last gang started, for all launchers to be verified: once in a leader's life."""

DOWN_S = 15.0
"""Without a leader: what a standby waits for a Lease that nobody gave up."""

FAILOVER_S = 20.0
"""Of heartbeats at a new leader."""

FLOOD_S = 30.0
"""Of heartbeats beside strangers."""

RENEWING = 0.1
END_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROCESSORS = sorted(os.sched_getaffinity(0))
SERVERS, LOADS = {PROCESSORS[0]}, {PROCESSORS[-1]}

Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="over which CPU is measured")
    parser.add_argument("--phase", action="append", help="run this one alone; may be repeated")
    given = parser.parse_args()
    figures: Figures = {
        "launchers": LAUNCHERS,
        "cpu_share": None,
        "beat_cpu_us": None,
        "launchers_16384_cpu_share": None,
        "launchers_16384_rss_mib": None,
        "failover_all_accepted_seconds": None,
        "valid_beat_p99_seconds_under_flood": None,
    }
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "key.pem", given.seconds)
        phases = {
            "usual": bench.usual,
            "most": bench.most,
            "failover": bench.failover,
            "flood": bench.flood,
        }
        for name in given.phase or phases:
            try:
                found = phases[name]()
            except (AssertionError, subprocess.TimeoutExpired) as error:
                log_progress(f"{name} failed: {error}")
                failed = True
            else:
                log_progress(f"{name}: {found}")
                figures |= found
    print(json.dumps(figures))
    sys.exit(failed)


@dataclass(frozen=True, slots=True)
class Child:
    """A process that is spoken to in lines."""

    process: subprocess.Popen[str]

    def send_line(self) -> None:
        """The next line of its input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """End its input; what it still prints."""
        rest, _ = self.process.communicate(timeout=END_S)
        return rest.strip()

    def cpu_s(self) -> float:
        """Its process time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_mib(self) -> float:
        """Its memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Bench:
    """The phases. ``key`` is a file that servers and launchers share."""

    def __init__(self, key: Path, seconds: float) -> None:
        self._key = key
        self._seconds = seconds
        SigningKey("key").write(key)
        certificates.write(key.parent)

    def usual(self) -> Figures:
        cpu_s, _, found = self._steady(LAUNCHERS)
        return {
            "cpu_share": round(cpu_s / self._seconds, 3),
            "beat_cpu_us": round(cpu_s / found["beats"] * 1e6, 1),
        }

    def most(self) -> Figures:
        cpu_s, resident_mib, _ = self._steady(MOST_LAUNCHERS)
        return {
            "launchers_16384_cpu_share": round(cpu_s / self._seconds, 3),
            "launchers_16384_rss_mib": round(resident_mib),
        }

    def failover(self) -> Figures:
        """Seconds from when a new leader listens until it has accepted every launcher."""
        port = _free_port()
        with self._load(port, MOST_LAUNCHERS) as load:
            with self._listening(port, MOST_LAUNCHERS):
                load.send_line()
                _pass(_ramp_s(MOST_LAUNCHERS) + SETTLE_S)
            load.send_line()
            _pass(DOWN_S)
            with self._server(port, MOST_LAUNCHERS) as server:
                load.send_line()
                began_s, before_s = time.monotonic(), server.cpu_s()
                server.send_line()
                assert server.line() == "listening"
                _pass(FAILOVER_S)
                log_progress(f"  cpu of the new leader: {server.cpu_s() - before_s:.2f} s")
                found = _figures(load, MOST_LAUNCHERS)
        return {
            "failover_all_accepted_seconds": round(float(found["last_accepted_s"]) - began_s, 2)
        }

    def flood(self) -> Figures:
        """The 99th percentile of the time that a valid heartbeat takes, on kept connections or on
        new ones, whichever is longer."""
        port = _free_port()
        with (
            self._listening(port, LAUNCHERS) as server,
            self._load(port, LAUNCHERS, RENEWING) as load,
            contextlib.ExitStack() as ends,
        ):
            for source in (OWN_ADDRESS, OTHER_ADDRESS):
                strangers = _child(LOADS, "fixtures.strangers", port, source, STRANGERS)
                ends.callback(lambda child: log_progress(f"  strangers: {child.end()}"), strangers)
                assert strangers.line() == "there"
            before_s = server.cpu_s()
            load.send_line()
            _pass(FLOOD_S)
            log_progress(f"  cpu: {(server.cpu_s() - before_s) / FLOOD_S:.2f}")
            found = _figures(load, LAUNCHERS)
        p99_s = max(float(found["kept_p99_s"]), float(found["new_p99_s"]))
        return {"valid_beat_p99_seconds_under_flood": round(p99_s, 3)}

    def _steady(self, launchers: int) -> tuple[float, float, Figures]:
        """CPU seconds of the server while all launchers are connected, and its memory in MiB."""
        port = _free_port()
        with self._listening(port, launchers) as server, self._load(port, launchers) as load:
            load.send_line()
            _pass(_ramp_s(launchers) + SETTLE_S)
            load.send_line()
            before_s = server.cpu_s()
            _pass(self._seconds)
            cpu_s, resident_mib = server.cpu_s() - before_s, server.resident_mib()
            return cpu_s, resident_mib, _figures(load, launchers)

    @contextlib.contextmanager
    def _listening(self, port: int, launchers: int) -> Iterator[Child]:
        with self._server(port, launchers) as server:
            server.send_line()
            assert server.line() == "listening"
            yield server

    @contextlib.contextmanager
    def _server(self, port: int, launchers: int) -> Iterator[Child]:
        """Ready to listen."""
        with _ended(_child(SERVERS, "bench.heartbeat_server", self._key, launchers, port)) as child:
            assert child.line() == "ready"
            yield child

    @contextlib.contextmanager
    def _load(self, port: int, launchers: int, renewing: float = 0.0) -> Iterator[Child]:
        """Ready to begin."""
        shares = f"--launchers={launchers}", f"--renewing={renewing}"
        with _ended(_child(LOADS, "bench.heartbeat_load", self._key, port, *shares)) as child:
            assert child.line() == "ready"
            yield child


def _figures(load: Child, launchers: int) -> Figures:
    """Of a load that ends here, and in which every launcher was accepted."""
    found: Figures = json.loads(load.end())
    log_progress(f"  {found}")
    assert found["accepted"] == launchers, "not all launchers were accepted"
    return found


def _ramp_s(launchers: int) -> float:
    """Until the last gang has started."""
    return launchers / GANG * GANG_EVERY_S


def log_progress(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def _pass(seconds: float) -> None:
    """Let time go by, which is what is measured over."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(left_s)


def _child(processors: set[int], module: str, *arguments: object) -> Child:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.sched_setaffinity(process.pid, processors)
    return Child(process)


@contextlib.contextmanager
def _ended(child: Child) -> Iterator[Child]:
    """It has ended afterwards, come what may."""
    try:
        yield child
        if child.process.poll() is None:
            child.end()
    finally:
        child.process.kill()
        child.process.wait()


def _free_port() -> int:
    with socket.create_server((OWN_ADDRESS, 0)) as listener:
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
