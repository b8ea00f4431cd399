"""`python -m railwright_agent serve` answers probes, `survey NODES` sends the agents to each other
and prints the domains of their nodes, as probes.json. `hardware` prints the hardware of this
machine, `benchmark` benchmarks its idle devices. `report` reports both and the utilization of GPUs
to the controllers until it is stopped, and measures other nodes when the controllers dispatch probe
tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from railwright_agent import benchmark, hardware, polling, prober, reporting, utilization
from railwright_agent.handshake import ProbeError
from railwright_agent.hardware import HardwareSources
from railwright_agent.polling import ProbePoller
from railwright_agent.reporting import ControllersClient, ControllersUrlError, PollRequest
from railwright_agent.responder import Responder
from railwright_topology.probing import keys
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

PORT = 7946
AT_ONCE = 1
"""Concurrent probes may share an uplink and measure too little."""

EXIT_FAILED = 1
"""A file, an address or the answer of another agent cannot be used; stderr says why."""

EXIT_INTERRUPTED = 130
"""A signal stopped the agent."""

_log = functools.partial(print, file=sys.stderr, flush=True)


def main() -> int:
    arguments = _arguments()
    try:
        if arguments.command == "hardware":
            print(hardware_documents.written(hardware.gather(_sources(arguments))))
            return 0
        if arguments.command == "benchmark":
            print(hardware_documents.written(benchmark.measure(Path(arguments.root))), flush=True)
            # A device that hangs would keep this process from ending.
            os._exit(0)
        if arguments.command == "report":
            # The first process of a container ignores SIGTERM without a handler.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            _run_reporting(arguments)
        token = Path(arguments.token_file).read_text(encoding="utf-8").strip()
        if arguments.command == "token":
            print(keys.agent_token(token, arguments.address))
        elif arguments.command == "serve":
            asyncio.run(_serve(token, arguments.bind, arguments.port))
        else:
            print(_surveyed(token, arguments))
    except (ProbeError, ControllersUrlError, OSError) as error:
        _log(error)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m railwright_agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="answer probes until interrupted")
    serve.add_argument("--bind", required=True, help="the address of this node to listen at")
    survey = commands.add_parser("survey", help="find the domains of nodes")
    survey.add_argument("nodes", help="a file with a line for each node: its name, its address")
    survey.add_argument("--at-once", type=int, default=AT_ONCE, help="pairs probed at a time")
    survey.add_argument(
        "--seconds", type=float, default=prober.SECONDS, help="how long bandwidth is measured"
    )
    survey.add_argument(
        "--uplinks",
        action="store_true",
        help="fill each domain's uplinks too: how many of its nodes can send out of it at once",
    )
    token = commands.add_parser("token", help="print the token of one agent, of that of a survey")
    token.add_argument("address", help="address of the agent, as in NODES")
    own = commands.add_parser("hardware", help="print the hardware of this machine")
    report = commands.add_parser(
        "report", help="report the hardware of this machine to the controllers"
    )
    report.add_argument("--controllers", required=True, help="their URL, https://ADDRESS:PORT")
    report.add_argument("--token-file", required=True, help="a token for the controllers alone")
    report.add_argument("--authorities-file", help="with https: who signs their certificate (PEM)")
    report.add_argument("--bind", help="where to answer probes, if not at a rail's address")
    report.add_argument(
        "--benchmark", action="store_true", help="benchmark idle devices, and report the results"
    )
    measure = commands.add_parser("benchmark", help="benchmark the idle devices of this machine")
    for command in (own, report, measure):
        command.add_argument("--root", default="/", help="root of the machine's file system")
    for command in (own, report):
        command.add_argument("--description", help="a file in which its site describes it")
        command.add_argument("--nccl-topology", help="a file that NCCL wrote or a cloud gives")
    for command in (serve, survey, report):
        command.add_argument("--port", type=int, default=PORT, help="where probes are answered")
    serve.add_argument("--token-file", required=True, help="this agent's own token")
    for command in (survey, token):
        command.add_argument(
            "--token-file", required=True, help="the token of the survey, which no agent has"
        )
    return parser.parse_args()


def _sources(arguments: argparse.Namespace) -> HardwareSources:
    description, topology = arguments.description, arguments.nccl_topology
    return HardwareSources(
        Path(arguments.root),
        Path(description) if description else None,
        Path(topology) if topology else None,
    )


def _run_reporting(arguments: argparse.Namespace) -> None:
    """Report until interrupted. Probes go over the first rail with an address, as trainings do."""
    controllers = ControllersClient(
        arguments.controllers,
        Path(arguments.token_file),
        _sources(arguments),
        Path(arguments.authorities_file) if arguments.authorities_file else None,
    )
    poller = ProbePoller(controllers, arguments.port, _log)
    schedule = None
    if arguments.benchmark:
        schedule = benchmark.BenchmarkSchedule(Path(arguments.root), clock=time.monotonic, log=_log)

    def on_poll_request(request: PollRequest, document: Document) -> None:
        rail = polling.rail_address(document.hardware_reports, request.networks)
        poller.start(arguments.bind or rail or request.host)

    rng = random.Random()  # noqa: S311
    threading.Thread(
        target=utilization.run, args=[controllers], kwargs={"rng": rng, "log": _log}, daemon=True
    ).start()
    reporting.run(
        controllers, on_poll_request=on_poll_request, rng=rng, log=_log, benchmark=schedule
    )


async def _serve(token: str, host: str, port: int) -> None:
    server = await Responder(token).start(host, port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


def _surveyed(token: str, arguments: argparse.Namespace) -> str:
    # Only surveys need numpy, which is not loaded on every node.
    from railwright_agent import surveyor
    from railwright_topology.sources import probes

    agents = surveyor.SurveyedAgents(_addresses(Path(arguments.nodes)), arguments.port, token)
    survey = surveyor.run(
        agents, arguments.at_once, arguments.seconds, log=_log, uplinks=arguments.uplinks
    )
    found = asyncio.run(survey)
    placed = {node for tier in found.tiers for node in tier}
    return probes.written(found, dict.fromkeys(placed, int(time.time())))


def _addresses(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if words and (len(words) != 2 or words[0] in found):
            raise ProbeError(f"{path}:{number}: each line has a node's name and its address, once.")
        if words:
            found[words[0]] = words[1]
    return found


if __name__ == "__main__":
    sys.exit(main())
