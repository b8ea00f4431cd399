"""Reports of node agents, with tokens and keys of a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from fixtures import heartbeats, nvml, shell
from fixtures.heartbeats import ATTEMPT, JOB, Heartbeats
from railwright import protocol
from railwright_agent import reporting
from railwright_agent.benchmark import BenchmarkSchedule
from railwright_agent.hardware import HardwareSources
from railwright_agent.reporting import ControllersClient
from railwright_controllers.agents import probe_tasks
from railwright_controllers.agents import server as agents
from railwright_testbed import ControlPlane
from railwright_topology.parts import CPU, PARTS_MAX, HardwareReport, Kind, Part
from railwright_topology.probing import keys
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

DOCUMENT = Document((HardwareReport("sysfs", Provenance.SEEN, (Part("gpu", Kind.ACCELERATOR),)),))
TEXT = hardware_documents.written(DOCUMENT).encode()


@pytest.fixture
async def world(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Heartbeats]:
    async with (
        shell.api(shell.connect(control_plane)) as api,
        heartbeats.listening(api, namespace) as listening,
    ):
        listening.nodes = {"n0", "n1"}
        yield listening


async def test_agents_report_for_the_node_in_its_token(world: Heartbeats) -> None:
    for node in ("n0", "n1"):
        token = await world.agents_token(node)
        assert await world.post_message(agents.PATH, token, TEXT) == (200, {"poll": False})
    assert world.inventories == {"n0": DOCUMENT, "n1": DOCUMENT}


async def test_sender_that_is_no_node_agent_is_refused(world: Heartbeats) -> None:
    refused = {
        "of another account": await world.agents_token("n0", service_account="somebody"),
        "for another audience": await world.agents_token("n0", audience=heartbeats.audience(JOB)),
        "of a pod on no node": await world.agents_token(""),
        "of a launcher": await world.token("pod-0", world.pods[0]),
        "of no pod": await world.token_of(
            {"audiences": ["railwright.dev"]}, service_account="somebody"
        ),
        "none": "nonsense",
    }
    for whose, token in refused.items():
        assert (await world.post_message(agents.PATH, token, TEXT))[0] == 403, whose
    assert (await world.post(agents.PATH, TEXT))[0] == 403
    assert not world.inventories


async def test_agent_token_is_refused_for_a_launcher(world: Heartbeats) -> None:
    token = await world.agents_token("n0")
    heartbeat = protocol.Heartbeat(
        protocol.Member(JOB, ATTEMPT, 0), sequence=1, running=1, exited=0
    )
    assert (await world.post_message("/v1/beat", token, heartbeat))[0] == 403


async def test_what_is_no_document_is_refused_with_its_rule(world: Heartbeats) -> None:
    token = await world.agents_token("n0")
    status, answer = await world.post_message(agents.PATH, token, b'{"version": 0}')
    assert (status, answer["error"]) == (400, "agents: version: expected 1 or later")
    assert (await world.post_message(agents.PATH, token, b"\xff"))[0] == 400
    large = b" " * (agents.BODY_BYTES_MAX + 1)
    assert (await world.post_message(agents.PATH, token, large))[0] == 413
    assert not world.inventories


async def test_called_agent_gets_key_and_probe_task(
    world: Heartbeats,
) -> None:
    world.probe_tasks.selected = {"n0": ("10.0.0.0",), "n1": ("10.0.0.1",)}
    world.probe_tasks.networks = ("10.9.0.0/16",)
    tokens = {node: await world.agents_token(node) for node in ("n0", "n1")}
    called = {"poll": True, "networks": ["10.9.0.0/16"]}
    assert await world.post_message(agents.PATH, tokens["n0"], TEXT) == (200, called)
    polls, node_keys = {}, {}
    for at, node in enumerate(tokens):
        status, node_keys[node] = await world.post_message(agents.POLL_PATH, tokens[node], b"{}")
        assert (status, {*node_keys[node]}) == (200, {"key"})
        place = b'{"host": "10.0.0.%d", "port": 7946}' % at
        polls[node] = asyncio.create_task(world.post_message(agents.POLL_PATH, tokens[node], place))
    await shell.until(lambda: world.probe_tasks.there() == {"n0", "n1"}, "two that stand by")
    sent = asyncio.create_task(world.probe_tasks.dispatch(("n0", "n1"), seconds=0.1))
    status, probe_task = await polls["n0"]
    assert (probe_task["host"], probe_task["key"]) == ("10.0.0.1", node_keys["n0"]["key"])
    assert probe_task["pairKey"] == keys.pair_key(node_keys["n1"]["key"], "n0")
    sent.cancel()
    polls["n1"].cancel()


async def test_sender_that_is_no_agent_gets_no_key(world: Heartbeats) -> None:
    world.probe_tasks.selected = {"n0": (), "": ()}
    for token in (
        await world.agents_token("n0", service_account="somebody"),
        await world.agents_token("n0", audience=heartbeats.audience(JOB)),
        await world.agents_token(""),
        await world.token("pod-0", world.pods[0]),
        "nonsense",
    ):
        status, answer = await world.post_message(agents.POLL_PATH, token, b"{}")
        assert (status, "key" in answer) == (403, False)
    token = await world.agents_token("n0")
    assert (await world.post_message(agents.POLL_PATH, token, b'{"host": "a", "port": 1}'))[
        0
    ] == 400
    large = b" " * (probe_tasks.BODY_BYTES_MAX + 1)
    assert (await world.post_message(agents.POLL_PATH, token, large))[0] == 413


async def test_standby_or_unsynced_operator_makes_agent_retry(
    world: Heartbeats,
) -> None:
    stranger = await world.agents_token("elsewhere")
    assert (await world.post_message(agents.PATH, stranger, TEXT))[0] == 503
    world.leads = False
    token = await world.agents_token("n0")
    assert (await world.post_message(agents.PATH, token, TEXT))[0] == 503
    assert not world.inventories


async def test_real_agent_reports_this_machine(world: Heartbeats, tmp_path: Path) -> None:
    teller = await _teller(world, tmp_path)
    command = [sys.executable, "-m", "railwright_agent", "report"]
    options = [f"--controllers={teller.controllers}", f"--token-file={teller.token_file}"]
    agent = await asyncio.create_subprocess_exec(*command, *options)
    try:
        await shell.until(lambda: world.inventories, "the document of an agent")
    finally:
        agent.terminate()
        await agent.wait()
    assert {*world.inventories} == {"n1"}
    sources = {report.source for report in world.inventories["n1"].hardware_reports}
    assert sources <= {"sysfs", "hwloc", "nvidia-smi", "KFD"}


async def test_real_agent_reports_gpus_of_stand_in_nvml(world: Heartbeats, tmp_path: Path) -> None:
    """No GPU exists here: the agent loads a library that answers as NVML does."""
    controllers = await _teller(world, tmp_path)
    await asyncio.to_thread(nvml.build, tmp_path)
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "railwright_agent", "report", f"--root={tmp_path}"),
        *(f"--controllers={controllers.controllers}", f"--token-file={controllers.token_file}"),
        env={"PATH": "", "LD_LIBRARY_PATH": str(tmp_path)},
    )
    try:
        await shell.until(lambda: world.gpus, "the utilization of GPUs", deadline_s=60.0)
    finally:
        agent.terminate()
        await agent.wait()
    assert world.gpus == {"n1": [1.0, 0.5]}


async def test_utilization_is_read_leniently_and_bounded(world: Heartbeats) -> None:
    """Fields of a later version are skipped."""
    token = await world.agents_token("n0")
    refused = (
        b"{}",
        b"\xff",
        b'{"gpus": []}',
        b'{"gpus": [1.1]}',
        b'{"gpus": [NaN]}',
        b'{"gpus": ["a"]}',
        b'{"gpus": [%s]}' % b",".join([b"1"] * (PARTS_MAX + 1)),
    )
    for body in refused:
        assert (await world.post_message(agents.UTILIZATION_PATH, token, body))[0] == 400, body
    large = b" " * (agents.UTILIZATION_BYTES_MAX + 1)
    assert (await world.post_message(agents.UTILIZATION_PATH, token, large))[0] == 413
    stranger = await world.agents_token("n0", service_account="somebody")
    later = b'{"gpus": [0.25, 1], "memory": {"later": 1}}'
    assert (await world.post_message(agents.UTILIZATION_PATH, stranger, later))[0] == 403
    assert not world.gpus
    assert await world.post_message(agents.UTILIZATION_PATH, token, later) == (200, {})
    assert world.gpus == {"n0": [0.25, 1.0]}


async def test_agents_report_device_benchmark_unless_busy(
    world: Heartbeats, tmp_path: Path
) -> None:
    teller = await _teller(world, tmp_path)
    stated: list[str] = []
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        """The second look measures."""
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    def agent() -> None:
        kept = BenchmarkSchedule(Path("/"), clock=time.monotonic, log=stated.append)
        with contextlib.suppress(KeyboardInterrupt):
            reporting.run(
                teller,
                on_poll_request=lambda *_: None,
                pause=pause,
                rng=Random(0),
                log=stated.append,
                benchmark=kept,
            )

    await asyncio.to_thread(agent)
    reported = world.inventories["n1"].benchmarks
    busy = " ".join(stated).replace(",", " ").split()
    measured = {benchmarks.device for benchmarks in reported}
    assert measured.isdisjoint(busy)
    assert CPU not in measured or measured == {CPU}
    assert measured or busy
    assert all(benchmarks.flop_per_s > 0 < benchmarks.memory_bytes_per_s for benchmarks in reported)


async def _teller(world: Heartbeats, folder: Path) -> ControllersClient:
    """An agent's on n1."""
    file = folder / "token"
    file.write_text(await world.agents_token("n1"))
    url = f"http://{world.agents_address[0]}:{world.agents_address[1]}"
    return ControllersClient(url, file, HardwareSources(Path("/")))
