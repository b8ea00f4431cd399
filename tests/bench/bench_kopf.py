"""What an index of kopf costs until its first list is in it, for which no cache of nodes or pods is
one (decision 10).

So many ConfigMaps exist when kopf starts, with an index of their names and a handler of their
events, or with the handler alone. The CPU seconds of that process until the handler was called for
each of them count. One JSON object on stdout; no bar, as it measures a library.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from contextlib import closing
from typing import Any, cast

import kopf

from bench import bars, gang_site
from railwright_kube import connection
from railwright_testbed import ControlPlane

COUNTS = (250, 500, 1_000, 2_000)
PATH = "/api/v1/namespaces/default/configmaps"
LABEL = "set"
DEADLINE_S = 300.0


def main() -> int:
    figures: dict[str, dict[str, float]] = {"indexed_cpu_seconds": {}, "plain_cpu_seconds": {}}
    with ControlPlane.start("kopf") as plane:
        for count in COUNTS:
            with closing(plane.client()) as client:
                for number in range(count):
                    metadata = {"name": f"of-{count}-{number}", "labels": {LABEL: str(count)}}
                    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                    client.post(PATH, body)
            for name, cpu_s in figures.items():
                command = [sys.executable, "-m", __spec__.name, name, str(plane.kubeconfig)]
                ran = subprocess.run(
                    [*command, str(count)], stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S
                )
                cpu_s[str(count)] = json.loads(ran.stdout)
                gang_site.log_progress(f"{count} objects, {name}: {cpu_s[str(count)]}")
    return bars.publish(figures)


def _run(kubeconfig: str, count: int, *, indexed: bool) -> None:
    """kopf, until its handler was called for each object; print its CPU seconds."""
    registry, seen = kopf.OperatorRegistry(), set[str]()
    done = asyncio.Event()
    selected: dict[str, Any] = {"labels": {LABEL: str(count)}, "registry": registry}

    async def handle(name: str, **_: Any) -> None:
        seen.add(name)
        if len(seen) == count:
            done.set()

    def login(**_: Any) -> kopf.ConnectionInfo:
        settings = connection.load(kubeconfig)
        return kopf.ConnectionInfo(
            server=settings.host,
            ca_path=settings.ssl_ca_cert,
            token=connection.bearer_token(settings),
        )

    if indexed:
        kopf.index("", "v1", "configmaps", **selected)(lambda name, **_: {name: name})
    kopf.on.event("", "v1", "configmaps", **selected)(handle)
    kopf.on.login(registry=registry)(login)
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    asyncio.run(
        kopf.operator(
            registry=registry,
            settings=settings,
            identity=cast(Any, "bench"),
            standalone=True,
            clusterwide=True,
            stop_flag=done,
        )
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(round(used.ru_utime + used.ru_stime, 1))


if __name__ == "__main__":
    if sys.argv[1:]:
        way, kubeconfig, count = sys.argv[1:]
        _run(kubeconfig, int(count), indexed=way.startswith("indexed"))
    else:
        sys.exit(main())
