"""Nodes of which real agents measure each other. All agents are on this machine, so all nodes are
near each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fixtures import local_network, machines
from integration import node_agents
from integration.node_agents import NodeAgents
from integration.operator_site import FABRIC, Floor, Json, Site
from railwright_agent.__main__ import PORT
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.service_process import NAMESPACE

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
KEPT = f"{CONFIG_MAPS}/{names.PROBES}"
SOURCE = f"{names.PROBES}/probes"
MACHINE = machines.planted(Random(3))
NODES = 4


@dataclass(frozen=True, slots=True)
class Rails:
    """Where each node's agent answers probes."""

    floor: Floor
    network: str

    def host(self, node: str) -> str:
        return local_network.address(self.network, self.floor.nodes.index(node) + 1)

    def start(self, agents: NodeAgents) -> None:
        for node in self.floor.nodes:
            agents.start(node, MACHINE, bind=self.host(node))

    def listens(self, node: str) -> bool:
        return node_agents.listens(self.host(node), PORT)


def unlabel(site: Site, node: str) -> None:
    """Take the node's label of a topology away."""
    site.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {names.LABEL_RACK: None}}})


def until_status(site: Site, holds: Callable[[Json], bool], what: str, deadline_s: float) -> Json:
    """The status of the Fabric, once it is as it is awaited."""
    waiting.until(
        lambda: holds(_status(site)),
        what,
        deadline_s=deadline_s,
        evidence=lambda: f"{_status(site)} {site.controllers.log()}",
    )
    return _status(site)


def until_nodes(site: Site, state: str, nodes: int, deadline_s: float = 30) -> None:
    """Wait until so many nodes are ``due``, or due and ``polling``."""
    name = f"railwright_survey_{state}_nodes"
    waiting.until(
        lambda: site.controllers.series(name) == {name: nodes},
        f"{nodes} {state}",
        deadline_s=deadline_s,
        evidence=site.controllers.log,
    )


def probes(site: Site) -> float:
    """How many probes these controllers had sent."""
    return sum(site.controllers.series("railwright_probes_total").values())


def _status(site: Site) -> Json:
    found: Json = site.admin.get(FABRIC).get("status", {})
    return found
