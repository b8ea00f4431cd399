"""The controllers find the racks of nodes without topology information, by real traffic over shaped
links.

The nodes are simulated but for their agents: each of those is in a network namespace of its own,
and a relay in it leads to the controllers.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from fixtures import command_line, relay, shaped_network
from fixtures.planted_network import adjusted_rand_index
from fixtures.shaped_network import OUTSIDE, ShapedNetwork, Speeds
from integration import operator_site
from integration.node_agents import NodeAgents
from integration.operator_site import Site
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.processes import Process

SPEEDS = Speeds(node=120, rack=30, block=30)
PORT = 8480
FABRIC = f"/apis/{names.API_VERSION}/{names.FABRICS}/{names.SINGLETON}"


def test_racks_are_found_by_probes_of_agents(
    tmp_path: Path,
) -> None:
    with (
        operator_site.opened() as site,
        operator_site.floor_on(site, (6,)) as floor,
        shaped_network.opened(((3, 3),), SPEEDS) as network,
    ):
        for node in floor.nodes:
            labels = {"metadata": {"labels": {names.LABEL_RACK: None}}}
            site.admin.patch(f"/api/v1/nodes/{node}", labels)
        rails = [f"{network.address(OUTSIDE)}/24"]
        site.admin.patch(FABRIC, {"spec": {"probing": {"networks": rails}}})
        due = "railwright_survey_due_nodes"
        waiting.until(
            lambda: site.controllers.series(due) == {due: 6}, "all nodes due", deadline_s=30
        )
        places = dict(zip(network.paths, floor.nodes, strict=True))
        with _agents(site, network, places, tmp_path):
            waiting.until(
                lambda: _summary(site) == "1 > 2",
                "two racks",
                deadline_s=300,
                evidence=lambda: f"{_summary(site)} {site.controllers.log()}",
            )
        reported = json.loads(command_line.topology(site.plane, "-o", "json"))
    found = {node: reported["nodes"][its][-1] for node, its in places.items()}
    assert adjusted_rand_index(network.tiers[0], found) == 1.0
    assert reported["sources"] == [f"{names.PROBES}/probes"]


def _summary(site: Site) -> str:
    return str(site.admin.get(FABRIC).get("status", {}).get("summary"))


@contextlib.contextmanager
def _agents(
    site: Site, network: ShapedNetwork, places: Mapping[str, str], folder: Path
) -> Iterator[None]:
    """One in each namespace, for the node that stands there."""
    tokens, logs = NodeAgents(site, folder), network.folder.logs
    socket, port = folder / "controllers", int(site.controllers.url.rpartition(":")[2])
    host, commands = "127.0.0.1", {}
    for name, node in places.items():
        command = [sys.executable, "-m", "fixtures.relay", host, str(PORT), str(socket)]
        commands[f"relay-{name}"] = network.in_namespace(name, *command)
        (folder / name).mkdir()
        (folder / name / "token").write_text(tokens.token(node))
        command = [sys.executable, "-m", "railwright_agent", "report", f"--root={folder / name}"]
        # The certificate of the controllers is for the host at which they listen.
        command += [f"--controllers=https://{host}:{PORT}", f"--token-file={folder / name}/token"]
        command += [f"--authorities-file={tokens.authorities}", f"--bind={network.address(name)}"]
        commands[name] = network.in_namespace(name, *command)
    running: list[Process] = []
    try:
        with relay.behind(socket, port):
            for name, each in commands.items():
                log = logs / f"{name}.log"
                running.append(Process(name, each, log=log, records=network.folder.records))
            yield
    finally:
        for process in running:
            process.end()
        tokens.clear()
