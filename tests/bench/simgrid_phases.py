"""Run by a Python that has SimGrid: seconds of phases of flows, one phase after the other.

It reads a platform and phases, as one JSON object, from its input, and writes a list of seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile

import simgrid

FLUID = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "maxmin/concurrency-limit:-1",
)


def main() -> None:
    asked = json.load(sys.stdin)
    options = [f"--cfg={option}" for option in FLUID]
    engine = simgrid.Engine(["phases", "--log=root.thresh:warning", *options])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as platform:
        platform.write(asked["platform"])
        platform.flush()
        engine.load_platform(platform.name)
    hosts = {host.name: host for host in engine.all_hosts}
    found: list[float] = []

    def sent() -> None:
        for flows in asked["phases"]:
            began_s = engine.clock
            transfers = [
                simgrid.Comm.sendto_async(
                    engine.host_by_name(one), engine.host_by_name(other), size
                )
                for one, other, size in flows
            ]
            for each in transfers:
                each.wait()
            found.append(engine.clock - began_s)

    simgrid.Actor.create("sender", next(iter(hosts.values())), sent)
    engine.run()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
