"""A site whose network the real controllers discover: its labels, its file, its agents, its
controllers, and what happens to them.

Every second node shares a rack with its neighbour, and every fourth a block; a file says the same
or has the cables. All that is published is compared with the sources (``publication_checks``).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import partial
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_kube import paths
from simulator.api_server import ApiRequest, ApiResponse, ApiServer
from simulator.controllers_process import ControllersProcess
from simulator.links import ApiLink, LinkFaults
from simulator.machines import Machines
from simulator.node_agents import NodeAgents
from simulator.processes import NAMESPACE
from simulator.publication_checks import PublicationChecks
from simulator.sources import FILE, NODE, Source, Sources, read_labels
from simulator.statuses import StatusError
from simulator.stored_objects import Change
from simulator.virtual_loop import VirtualLoop

RACK, BLOCK = f"{names.GROUP}/rack", f"{names.GROUP}/block"
SITE = "site"
FABRIC = routes.one(names.FABRICS, names.SINGLETON)
FILES = ("", "plan.yaml", "lldp.json")
"""What the file of a site is; empty: there is none."""
INVALID = "{"
SOURCES_MAX = 4
"""No source changes while more views than this are possible."""

DEVICES = 8
NODES_MIN, NODES_MAX = 3, 7

STEPS_MAX = 300
"""Within so many steps the controllers are killed at an await."""
PAUSED_S_MAX = 150.0
"""A longer pause right after its start would count as time in which agents could report."""

RESTARTED_S = (0.5, 5.0, 20.0, 70.0)
DOWN_S = (30.0, 200.0, 700.0)


class Site:
    """The site of one run. ``note`` adds a line to the trace."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        rng: Random,
        *,
        machines: Machines,
        faults: LinkFaults,
        note: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._server = server
        self._rng = rng
        self._faults = faults
        self._note = note
        self._machines = machines
        self._born = 0
        self._moved: dict[str, str] = {}
        self._is_held = False
        self.process: ControllersProcess | None = None
        self.sources = Sources(loop.time)
        self.agents = NodeAgents(
            loop,
            Random(rng.getrandbits(60)),
            machines,
            self.sources,
            route=lambda: self.process,
        )
        self.checks = PublicationChecks(self.sources, refresh=self.agents.refresh)
        self._file = rng.choice(FILES)
        self._content = ""
        self._invalid: set[Source] = set()
        server.admission.append(_with_labels)
        server.on_change.append(self._changed)
        metadata = {
            "name": SITE,
            "namespace": NAMESPACE,
            "labels": {names.LABEL_FABRIC: names.SINGLETON},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
        server.request("POST", paths.config_maps(NAMESPACE), body)
        loop.call_soon(self.start)

    def start(self) -> None:
        """A process of the controllers begins and gets the Lease, if none runs."""
        if self._is_held or self.process is not None:
            return
        if not self._born and self._file:
            self._content = self._rendered(sorted(self._machines.names))
            self._write_file()
        self._born += 1
        name = f"controllers-{self._born}"
        link = ApiLink(
            self._loop,
            self._server,
            self._faults,
            Random(self._rng.getrandbits(60)),
            carry_out=partial(self._carry_out, name),
            on_read=lambda request: None,
        )
        process = ControllersProcess(name, self._loop, link, rng=Random(self._rng.getrandbits(60)))
        self.process = process
        self.checks.controllers_began(invalid=self._invalid)
        process.lead()

    async def kill(self) -> str:
        """End the process; another one begins some time later."""
        process, self.process = self.process, None
        if process is None:
            return ""
        await process.crash()
        self._loop.call_later(self._rng.choice(RESTARTED_S), self.start)
        return process.name

    async def end(self) -> None:
        """No more faults: the file is valid, all agents run, and one process does. In half of the
        runs it begins when it is released."""
        if self._rng.random() < 0.5:
            self._is_held = True
            await self.kill()
        if self.process is not None:
            self.process.resume()
            self.process.expire_watches()
        self.agents.end()
        self._write_file()
        self.start()

    @property
    def compared(self) -> int:
        """How many versions of what is published were compared with the sources."""
        return self.checks.compared

    @property
    def left_out(self) -> int:
        """How many were not, as there were too many views of the sources."""
        return self.checks.left_out

    def release(self) -> None:
        """The controllers run."""
        self._is_held = False
        self.start()

    def unpublished(self) -> list[str]:
        """What has yet to be published."""
        return self.checks.unpublished()

    def unsettled(self) -> list[str]:
        """What has yet to be published by a process that is there: the operator acts on it."""
        return [] if self._is_held else self.unpublished()

    def _kill_at_await(self) -> str:
        """Kill it at one of its next awaits."""
        process = self.process
        if process is None or process.paused:
            return ""

        def stop() -> None:
            if self.process is process:
                process.pause()
                # Not in the context of this step, which is one of the paused process.
                self._loop.create_task(self.kill(), context=Context())

        steps = self._rng.randrange(1, STEPS_MAX)
        self._loop.call_after_steps(process.name, steps, stop)
        return f"{process.name} after {steps} steps"

    def _pause(self) -> str:
        process = self.process
        if process is None or process.paused:
            return ""
        process.pause()
        seconds = self._rng.uniform(1.0, PAUSED_S_MAX)
        self._loop.call_later(seconds, process.resume)
        return f"{process.name} {seconds:.0f} s"

    def _cut(self) -> str:
        if self.process is None:
            return ""
        seconds = self._rng.choice(DOWN_S)
        self.process.cut(seconds)
        return f"{self.process.name} {seconds:.0f} s"

    def _leave(self) -> str:
        """A node is removed."""
        nodes = self._machines.names
        if len(nodes) <= NODES_MIN or self._is_unsettled():
            return ""
        node = self._rng.choice(nodes)
        self._machines.remove(node)
        return node

    def _join(self) -> str:
        """A node is added, or one that was removed, again."""
        nodes = self._machines.names
        missing = [name for at in range(NODES_MAX) if (name := f"n{at}") not in nodes]
        if not missing or self._is_unsettled():
            return ""
        self._machines.add(missing[0], gpus=DEVICES)
        return missing[0]

    def _relabel(self) -> str:
        """A node moves into another rack."""
        nodes = sorted(node["metadata"]["name"] for node in self._server.objects(paths.NODES))
        if not nodes or self._is_unsettled():
            return ""
        node, rack = self._rng.choice(nodes), f"r{self._rng.randrange(4)}"
        body = {"metadata": {"labels": {RACK: rack}}}
        self._request("PATCH", f"{paths.NODES}/{node}", body)
        return f"{node} {rack}"

    def _change_file(self) -> str:
        """The file says that a node is in another rack."""
        nodes = sorted(node["metadata"]["name"] for node in self._server.objects(paths.NODES))
        if not nodes or not self._file or self._is_unsettled():
            return ""
        node = self._rng.choice(nodes)
        self._moved[node] = f"r{self._rng.randrange(4)}"
        self._content = self._rendered(nodes)
        self._write_file()
        return f"{node} {self._moved[node]}"

    def _break_file(self) -> str:
        if not self._content:
            return ""
        self._request("PATCH", _config_map(), {"data": {self._file: INVALID}})
        return self._file

    def _write_file(self) -> str:
        if not self._content:
            return ""
        self._request("PATCH", _config_map(), {"data": {self._file: self._content}})
        return self._file

    def _rendered(self, nodes: list[str]) -> str:
        racks: dict[str, list[str]] = {}
        for node in nodes:
            racks.setdefault(self._moved.get(node, _rack(node)), []).append(node)
        if self._file == "lldp.json":
            return json.dumps(
                {node: _neighbours(rack) for rack, its in racks.items() for node in its}
            )
        domains = {"all": {f"site-{rack}": ",".join(its) for rack, its in sorted(racks.items())}}
        return json.dumps({"version": 1, "tiers": ["block", "rack"], "domains": domains})

    def _change_agent(self) -> str:
        return "" if self._is_unsettled() else self.agents.change()

    def _stop_agent(self) -> str:
        return "" if self._is_unsettled() else self.agents.stop(self._rng.choice(DOWN_S))

    def _delete_fabric(self) -> str:
        return self._request("DELETE", FABRIC)

    def _delete_health(self) -> str:
        found = sorted(each["metadata"]["name"] for each in self._server.objects(_HEALTHS))
        if not found:
            return ""
        name = self._rng.choice(found)
        return self._request("DELETE", f"{_HEALTHS}/{name}") and name

    def _is_unsettled(self) -> bool:
        return self.sources.views_count > SOURCES_MAX

    def events(self, uplinks: Sequence[float]) -> dict[str, Callable[[], str | Awaitable[str]]]:
        """What happens to it, by the names of the events."""
        return {
            "controllers killed": self.kill,
            "controllers killed at await": self._kill_at_await,
            "controllers paused": self._pause,
            "controllers cut": self._cut,
            "node left": self._leave,
            "node joined": self._join,
            "node relabelled": self._relabel,
            "file changed": self._change_file,
            "file broken": self._break_file,
            "file repaired": self._write_file,
            "hardware changed": self._change_agent,
            "agent stopped": self._stop_agent,
            "fabric deleted": self._delete_fabric,
            "health deleted": self._delete_health,
        }

    def _carry_out(self, name: str, request: ApiRequest, known_version: int) -> ApiResponse:
        """A request of a process lands."""
        response = self._server.answer(request)
        if request.method != "GET":
            self._note(f"{name} {request.method} {request.path} {response.status}")
        return response

    def _changed(self, change: Change) -> None:
        """A stored change: of a source, or of what is published."""
        found, is_gone = change.object.object, change.type == "DELETED"
        name = found["metadata"]["name"]
        match change.object.resource.kind:
            case "Node":
                self._node_changed(name, found, change.type)
            case "ConfigMap" if found["metadata"]["namespace"] == NAMESPACE:
                for file, content in found.get("data", {}).items():
                    self._file_changed((FILE, f"{name}/{file}"), content)
            case "Fabric" if is_gone:
                self.checks.fabric_deleted()
                if self.process is not None and not self.process.has_published:
                    self.checks.controllers_began(invalid=self._invalid)
            case "Fabric":
                self.checks.fabric_stored(found.get("status", {}))
            case "NodeHealth" if is_gone:
                self.checks.health_deleted(name)
            case "NodeHealth":
                self.checks.health_stored(name, found["spec"])

    def _file_changed(self, source: Source, content: str) -> None:
        """An invalid file says what it said before."""
        if content == INVALID:
            self._invalid.add(source)
        else:
            self._invalid.discard(source)
            self.sources.put(source, content)

    def _node_changed(self, name: str, found: Any, change: str) -> None:
        if change == "DELETED":
            self.sources.put((NODE, name), None)
            self.agents.remove(name)
            return
        self.sources.put((NODE, name), read_labels(found["metadata"].get("labels", {})))
        if change == "ADDED":
            self.agents.add(name)

    def _request(self, method: str, path: str, body: Any = None) -> str:
        try:
            self._server.request(method, path, body)
        except StatusError:
            return ""
        return path


_HEALTHS = routes.kind(names.NODE_HEALTHS)


def _config_map() -> str:
    return paths.config_map(NAMESPACE, SITE)


def _with_labels(verb: str, path: str, found: dict[str, Any]) -> dict[str, Any]:
    """A new node with the labels of its rack and its block."""
    if verb != "create" or path != paths.NODES:
        return found
    metadata = found["metadata"]
    labels = {RACK: _rack(metadata["name"]), BLOCK: f"b{int(metadata['name'][1:]) // 4}"}
    return {**found, "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}


def _rack(node: str) -> str:
    return f"r{int(node[1:]) // 2}"


def _neighbours(rack: str) -> Any:
    """What ``lldpctl`` says on a host of this rack: each adapter is plugged into a switch."""
    return {
        "lldp": [
            {
                "interface": [
                    {
                        "name": f"ens{rail}f0",
                        "via": "LLDP",
                        "chassis": [
                            {
                                "id": [{"type": "local", "value": f"{rack}-{rail}"}],
                                "name": [{"value": f"{rack}-{rail}"}],
                                "capability": [{"type": "Bridge", "enabled": True}],
                            }
                        ],
                        "port": [{"id": [{"type": "ifname", "value": "swp1"}]}],
                    }
                    for rail in range(2)
                ]
            }
        ]
    }
