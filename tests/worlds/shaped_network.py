"""Racks and blocks of real network namespaces behind links of known bandwidth.

All is in namespaces that carry an id of their own, the bridges too, so no address and no link of
the machine is touched. A guardian takes it away when its owner dies, and whoever opens the next one
sweeps what is left of those whose guardian died too. The kernel's token bucket shapes bandwidth;
nothing shapes latency.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railwright_testbed import guardian, kernel_objects, network, state_folder, sweeping
from railwright_testbed.processes import Process
from railwright_testbed.state_folder import StateFolder
from railwright_topology.probing import keys

NAME = "shaped"
FABRIC, SPINE, OUTSIDE = "fabric", "spine", "outside"
BURST = "burst 16kb latency 20ms"
READY_DEADLINE_S = 60.0
SURVEY_DEADLINE_S = 900.0


@dataclass(frozen=True, slots=True)
class Speeds:
    """Megabits a second of each link, the same both ways."""

    node: int
    rack: int
    block: int


@dataclass(frozen=True, slots=True)
class ShapedNetwork:
    """``paths`` gives each node its rack and its block."""

    folder: StateFolder
    paths: Mapping[str, tuple[str, str]]

    @property
    def tiers(self) -> tuple[Mapping[str, str], ...]:
        """Who stands together, from the nearest outwards; last all of them do."""
        racks, blocks = ({node: path[tier] for node, path in self.paths.items()} for tier in (0, 1))
        return racks, blocks, dict.fromkeys(self.paths, SPINE)

    def survey(self, *options: str) -> str:
        """What a survey finds that runs outside of all nodes, plugged into the spine."""
        listed = self.folder.path / "nodes"
        listed.write_text("".join(f"{node} {self.address(node)}\n" for node in self.paths))
        answer = subprocess.run(
            self._agent(OUTSIDE, "survey", str(listed), *options),
            stdout=subprocess.PIPE,
            text=True,
            timeout=SURVEY_DEADLINE_S,
            check=True,
        )
        return answer.stdout

    def build(self, speeds: Speeds) -> None:
        """Namespaces, bridges, links, and their speeds."""
        inside = [*self.paths, OUTSIDE]
        network.batch([f"netns add {self._namespace(name)}" for name in (FABRIC, *inside)])
        above = dict(self.paths.values())
        bridges = [SPINE, *above, *{*above.values()}]
        cables = [(rack, block) for rack, block in above.items()]
        cables += [(block, SPINE) for block in sorted({*above.values()})]
        plugs = [(node, rack) for node, (rack, _) in self.paths.items()]
        lines = [f"link add {bridge} up type bridge" for bridge in bridges]
        for low, high in cables:
            lines.append(f"link add {low}-up type veth peer name {low}-down")
            lines.append(f"link set {low}-up master {low} up")
            lines.append(f"link set {low}-down master {high} up")
        for name, bridge in [*plugs, (OUTSIDE, SPINE)]:
            peer = f"peer name eth0 netns {self._namespace(name)}"
            lines.append(f"link add {name} type veth {peer}")
            lines.append(f"link set {name} master {bridge} up")
        network.batch(lines, namespace=self._namespace(FABRIC))
        for name in inside:
            address = f"address add {self.address(name)}/24 dev eth0"
            own = ["link set lo up", address, "link set eth0 up"]
            network.batch(own, namespace=self._namespace(name))
        self._shape(speeds, above)

    def slow(self, rack: str, mbit: int) -> None:
        """Let a rack's uplinks carry no more than this from now on, either way."""
        lines = [
            _shaping(f"{rack}-{end}", mbit).replace("add", "change", 1) for end in ("up", "down")
        ]
        network.batch(lines, namespace=self._namespace(FABRIC), program="tc")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """With an agent in each node that answers."""
        shared = secrets.token_hex(16)
        self._token(OUTSIDE).write_text(shared)
        agents = []
        try:
            for node in self.paths:
                own = keys.agent_token(shared, self.address(node))
                self._token(node).write_text(own)
                command = self._agent(node, "serve", "--bind", self.address(node))
                log = self.folder.logs / f"{node}.log"
                agents.append(Process(node, command, log=log, records=self.folder.records))
            for agent in agents:
                agent.until(
                    lambda agent=agent: "ready" in agent.log.read_text(),  # type: ignore[misc]
                    f"the agent of {agent.record.name}",
                    deadline_s=READY_DEADLINE_S,
                )
            yield
        finally:
            for agent in agents:
                agent.end()

    def _shape(self, speeds: Speeds, above: Mapping[str, str]) -> None:
        shaped = {node: speeds.node for node in self.paths}
        for end in ("up", "down"):
            shaped |= {f"{rack}-{end}": speeds.rack for rack in above}
            shaped |= {f"{block}-{end}": speeds.block for block in above.values()}
        lines = [_shaping(link, mbit) for link, mbit in shaped.items()]
        network.batch(lines, namespace=self._namespace(FABRIC), program="tc")
        for node in self.paths:
            own = [_shaping("eth0", speeds.node)]
            network.batch(own, namespace=self._namespace(node), program="tc")

    def inside(self, name: str, *command: str) -> list[str]:
        """This command, to be run there."""
        return ["ip", "netns", "exec", self._namespace(name), *command]

    def _agent(self, name: str, *arguments: str) -> list[str]:
        token = ["--token-file", str(self._token(name))]
        agent = [sys.executable, "-m", "railwright_agent", *arguments, *token]
        return self.inside(name, *agent)

    def _token(self, name: str) -> Path:
        return self.folder.path / f"token-{name}"

    def address(self, name: str) -> str:
        """Where it is reached; its adapter is called eth0."""
        return f"10.64.77.{[OUTSIDE, *self.paths].index(name) + 1}"

    def _namespace(self, name: str) -> str:
        return kernel_objects.namespace_name(self.folder.testbed_id, name)


@contextlib.contextmanager
def opened(blocks: Sequence[Sequence[int]], speeds: Speeds) -> Iterator[ShapedNetwork]:
    """So many nodes in each rack of each block. Names are scrambled, so that they tell nothing."""
    places = [
        (f"b{block}r{rack}", f"b{block}")
        for block, racks in enumerate(blocks)
        for rack, nodes in enumerate(racks)
        for _ in range(nodes)
    ]
    paths = {f"n{at * 7 % len(places):02d}": place for at, place in enumerate(places)}
    assert len(paths) == len(places), f"{len(places)} nodes: not with seven"
    sweeping.sweep_crashed()
    folder = state_folder.new(NAME)
    watch: Process | None = None
    try:
        folder.make()
        watch = guardian.start(folder)
        found = ShapedNetwork(folder, dict(sorted(paths.items())))
        found.build(speeds)
        yield found
    finally:
        sweeping.sweep(folder)
        if watch is not None:
            watch.end()


def measured(survey: str) -> list[dict[str, Any]]:
    """What a survey says of each of its tiers."""
    tiers: list[dict[str, Any]] = json.loads(survey)["tiers"]
    return tiers


def _shaping(link: str, mbit: int) -> str:
    return f"qdisc add dev {link} root tbf rate {mbit}mbit {BURST}"
