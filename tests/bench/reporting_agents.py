"""Agents of simulated nodes that report hardware to the controllers again and again, with tokens of
their own pods."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.gang_site import GPUS, GangSite, Json, log_progress
from integration.node_agents import NodeAgents
from railwright_agent.reporting import ReportRefusedError
from railwright_api import names, routes
from railwright_testbed import waiting
from railwright_testbed.api_client import ApiClient
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.controllers_process import ControllersProcess
from railwright_topology.parts import DeviceBenchmark, HardwareReport, Kind, Part
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

REPORT_EVERY_S = 5.0
"""Agents that a restart finds silent would delay what follows it: they report every 3 minutes."""
PUBLISHED_S = 60.0


@dataclass(frozen=True, slots=True)
class _AgentSite:
    plane: ControlPlane
    admin: ApiClient
    controllers: ControllersProcess


@dataclass(frozen=True, slots=True)
class ReportingAgents:
    """``messages`` is a file with the token and the document of each, as JSON."""

    messages: Path


def healths(site: GangSite) -> dict[str, Json]:
    """What the NodeHealths have of hardware, by node."""
    found = site.get(routes.kind(names.NODE_HEALTHS))["items"]
    return {each["metadata"]["name"]: each["spec"] for each in found if "hardware" in each["spec"]}


@contextmanager
def reporting(
    site: GangSite, controllers: ControllersProcess, nodes: Sequence[str]
) -> Iterator[ReportingAgents]:
    """The agents of these nodes report within the block, as long as the controllers are up. What
    they reported first is in NodeHealths."""
    log_progress(f"agents of {len(nodes)} nodes report")
    with tempfile.TemporaryDirectory() as folder, closing(site.plane.client()) as admin:
        agents = NodeAgents(_AgentSite(site.plane, admin, controllers), Path(folder))
        documents = {node: _document(number) for number, node in enumerate(nodes)}
        file = _write_messages(agents, documents, Path(folder))
        over = threading.Event()

        def report() -> None:
            while not over.wait(REPORT_EVERY_S):
                for node, document in documents.items():
                    with contextlib.suppress(ReportRefusedError):
                        agents.report_document(node, document)

        thread = threading.Thread(target=report)
        thread.start()
        try:
            waiting.until(
                lambda: healths(site).keys() == set(nodes), "NodeHealths", deadline_s=PUBLISHED_S
            )
            yield ReportingAgents(file)
        finally:
            over.set()
            thread.join()


def write_messages(
    site: GangSite,
    controllers: ControllersProcess,
    documents: Mapping[str, Document],
    folder: Path,
) -> Path:
    """A file there with the token and the document of each node, as JSON."""
    with closing(site.plane.client()) as admin:
        agents = NodeAgents(_AgentSite(site.plane, admin, controllers), folder)
        return _write_messages(agents, documents, folder)


def _write_messages(agents: NodeAgents, documents: Mapping[str, Document], folder: Path) -> Path:
    messages = [
        (agents.token(node), hardware_documents.written(document))
        for node, document in documents.items()
    ]
    file = folder / "messages.json"
    file.write_text(json.dumps(messages), encoding="utf-8")
    return file


def _document(number: int) -> Document:
    """GPUs of equal speed, but for one slow one on the first node; every other node has one less of
    them."""
    count = GPUS - number % 2
    gpus = [f"0000:{17 + at:02x}:00.0" for at in range(count)]
    parts = tuple(
        Part(pci, Kind.ACCELERATOR, pci=pci, number=at, model="10de:2330")
        for at, pci in enumerate(gpus)
    )
    usual = [DeviceBenchmark(pci, "H100", "torch 9.9", 660 * 10**12, 29 * 10**11) for pci in gpus]
    if number == 0:
        usual[0] = replace(usual[0], flop_per_s=403 * 10**12)
    report = HardwareReport("sysfs", Provenance.SEEN, parts)
    return Document((report,), benchmarks=tuple(usual))
