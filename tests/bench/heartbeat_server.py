"""The heartbeat server in a process of its own, for ``bench_heartbeats``.

Arguments: the PEM file of the signing key, with the authority of its certificate beside it, the
number of launchers, the port. Prints "ready", listens from the first line of its input on, prints
"listening", and stops at the end of its input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fixtures import certificates
from fixtures.heartbeat_gangs import Gangs
from fixtures.tokens import SigningKey
from railwright_process import garbage


async def main() -> None:
    key, launchers, port = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    garbage.collect_rarely()
    context = certificates.server_from(key.parent)
    gangs = Gangs(launchers, SigningKey.read(key), tls=lambda: context)
    garbage.keep_for_good()
    print("ready", flush=True)
    sys.stdin.readline()
    await gangs.start(port=port)
    print("listening", flush=True)
    keeping = asyncio.create_task(gangs.keys.run())
    await asyncio.to_thread(sys.stdin.read)
    keeping.cancel()
    await gangs.server.stop()


if __name__ == "__main__":
    asyncio.run(main())
