"""Faults of single processes that ``bench_isolation`` measures jobs beside. Each lasts as long as
its block, and fails where there was none."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench import gang_site
from bench.gang_site import GangSite
from bench.reporting_agents import ReportingAgents
from railwright_api import names
from railwright_kube import paths
from railwright_operator.mapping_requests import PROCESSES as MAPPER_PROCESSES
from railwright_testbed import waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess
from railwright_testbed.service_process import NAMESPACE

Fault = Callable[[], AbstractContextManager[None]]

FAULT_EVERY_S = 0.05
REQUEST_S = 0.5
READS_INPUT = "0 0x0 "
"""The number of ``read`` on this machine, and the file descriptor."""
FLOOD_CONNECTIONS, FLOOD_REPORTS_MIN = 64, 200
CABLES, LONG = 27_000, "x" * 230
PARSED_S = 1.0
"""CPU seconds of the controllers after which they are in the middle of that file: it takes four."""
DEADLINE_S = 120.0


def each_mapper(operator: OperatorProcess, fault: Callable[[int], None]) -> Fault:
    """The fault in every process of the mapper that is ready for a request, again in each that
    replaces one. Before and behind the block all are ready, and have no fault."""

    @contextmanager
    def lasting() -> Iterator[None]:
        _until_ready(operator)
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(FAULT_EVERY_S):
                for pid in operator.mapper_pids():
                    with contextlib.suppress(ProcessLookupError):
                        if _is_ready(pid):
                            fault(pid)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for pid in operator.mapper_pids():
                with contextlib.suppress(ProcessLookupError):
                    kill(pid)
        _until_ready(operator)

    return lasting


def _until_ready(operator: OperatorProcess) -> None:
    waiting.until(
        lambda: sum(map(_is_ready, operator.mapper_pids())) == MAPPER_PROCESSES,
        "all processes of the mapper are ready",
        deadline_s=DEADLINE_S,
    )


def _is_ready(pid: int) -> bool:
    """Whether it sleeps in a read of its standard input (``man 5 proc``, ``syscall``): one that is
    starting reads other files, and one that is stopped none."""
    try:
        stopped = "T" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return not stopped and Path(f"/proc/{pid}/syscall").read_text().startswith(READS_INPUT)
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def kill_with_request(pid: int) -> None:
    """Kill it after a while in which it can get a request, and answers none."""
    hang(pid)
    threading.Event().wait(REQUEST_S)
    kill(pid)


def hang(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def starve(pid: int) -> None:
    """Let it get no more memory."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (1 << 20, hard))


@contextmanager
def flooded(controllers: ControllersProcess, agents: ReportingAgents | None) -> Iterator[None]:
    """Reports arrive as fast as they can, each on a new connection: those of the agents, or without
    valid tokens."""
    file, code = ([str(agents.messages)], 200) if agents else ([], 403)
    command = [sys.executable, "-m", "bench.agent_flood", controllers.url, str(FLOOD_CONNECTIONS)]
    before = _answered(controllers, code)
    with subprocess.Popen([*command, *file]) as process:
        try:
            yield
            assert process.poll() is None, "the flood ended before the jobs were decided"
        finally:
            process.kill()
    count = _answered(controllers, code) - before
    gang_site.log_progress(f"  {count:.0f} reports answered with {code}")
    assert count >= FLOOD_REPORTS_MIN, f"{count:.0f} reports"


def _answered(controllers: ControllersProcess, code: int) -> float:
    """How many messages got a response with this status."""
    found = controllers.series("railwright_agent_requests_total{").items()
    return sum(count for series, count in found if f'code="{code}"' in series)


@contextmanager
def without(
    site: GangSite, controllers: ControllersProcess, *, seconds: float = 0.0
) -> Iterator[None]:
    """The controllers are killed so many seconds before the block, and start again behind it."""
    checked = _checked(site)
    controllers.stop()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(1.0)
    yield
    controllers.start()
    _until_checked(site, checked)


@contextmanager
def parsing_file(site: GangSite, controllers: ControllersProcess) -> Iterator[None]:
    """The controllers parse the largest file that is read."""
    with _large_file(site, controllers):
        yield
    _until_checked(site, _checked(site))
    waiting.until(
        lambda: "cables" not in str(site.fabric().get("sources")),
        "a Fabric without that file",
        deadline_s=DEADLINE_S,
    )


@contextmanager
def hung_on_file(site: GangSite, controllers: ControllersProcess) -> Iterator[None]:
    """The controllers stop in the middle of that file."""
    with _large_file(site, controllers):
        hang(controllers.pid)
        checked = _checked(site)
        yield
        state = Path(f"/proc/{controllers.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert (state, _checked(site)) == ("T", checked), "the controllers went on"
        # They lost their Lease meanwhile.
        controllers.stop()
    controllers.start()
    _until_checked(site, checked)


@contextmanager
def _large_file(site: GangSite, controllers: ControllersProcess) -> Iterator[None]:
    """A file with the cables of a network of other hosts, which the controllers have begun to
    parse."""
    path = paths.config_maps(NAMESPACE)
    labels = {names.LABEL_FABRIC: names.SINGLETON}
    packed = base64.b64encode(gzip.compress(_cables(), 9)).decode()
    body = {
        "metadata": {"name": "cables", "labels": labels},
        "binaryData": {"ibnetdiscover.txt.gz": packed},
    }
    used_s = gang_site.cpu_s(controllers.pid)
    site.request("POST", path, body)
    waiting.until(
        lambda: gang_site.cpu_s(controllers.pid) > used_s + PARSED_S,
        "that file is parsed",
        deadline_s=DEADLINE_S,
        pause_s_longest=0.05,
    )
    yield
    site.request("DELETE", paths.config_map(NAMESPACE, "cables"))


def _until_checked(site: GangSite, checked: str) -> None:
    waiting.until(lambda: _checked(site) > checked, "a checked Fabric", deadline_s=DEADLINE_S)


def _cables() -> bytes:
    """What ibnetdiscover prints of single cables between hosts and switches, some 30 MB. The names
    are long, so that they fit into a ConfigMap when they are compressed."""
    lines = []
    for at in range(CABLES):
        host, switch = f"h{at}{LONG} mlx5_0", f"s{at}{LONG}"
        lines += [
            f'Switch 1 "S-{at:x}" # "{switch}"',
            f'[1] "H-{at:x}"[1] # "{host}" lid 1 4xNDR',
            f'Ca 1 "H-{at:x}" # "{host}"',
            f'[1] "S-{at:x}"[1] # "{switch}" lid 1 4xNDR',
        ]
    return "\n".join(lines).encode()


def _checked(site: GangSite) -> str:
    """When the controllers last compared the sources with the Fabric."""
    return str(site.fabric().get("freshness", {}).get("checked", ""))


@contextmanager
def standby(site: GangSite) -> Iterator[None]:
    """A second operator beside the leader."""
    with OperatorProcess(
        site.plane, name="standby", host="127.0.0.1", launcher_image="example.com/launcher"
    ):
        yield


@contextmanager
def without_leader(operator: OperatorProcess) -> Iterator[None]:
    """The operator that leads is killed, and starts again behind the block."""
    operator.stop()
    yield
    operator.start()
