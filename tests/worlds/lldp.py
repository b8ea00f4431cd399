"""Hosts and switches in network namespaces, each with the real ``lldpd``, and what it tells.

A switch is a namespace with a bridge; a cable is a pair of links. Bridges do not pass LLDP on, so a
host sees the switch that it is plugged into and nobody behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from railwright_testbed import waiting
from worlds.clos import Cable

DEADLINE_S = 60.0


@dataclass
class Fabric:
    """Everything in it by name: namespaces, daemons and their sockets."""

    folder: Path
    id: str = field(default_factory=lambda: f"lldp-{uuid.uuid4().hex[:8]}")
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def told(self, name: str) -> Any:
        """What lldpctl prints there."""
        return json.loads(self._ask(name, "-f", "json0", "show", "neighbors", "details"))

    def interfaces(self, name: str) -> set[str]:
        """The interfaces on which somebody is seen."""
        seen = self.told(name)["lldp"][0].get("interface", [])
        return {each["name"] for each in seen}

    def _is_up(self, name: str) -> bool:
        """Whether the daemon answers and has taken its settings."""
        try:
            shown = json.loads(self._ask(name, "-f", "json0", "show", "chassis"))
        except subprocess.CalledProcessError:
            return False
        (chassis,) = shown["local-chassis"][0]["chassis"]
        return bool(chassis["name"][0]["value"] == name)

    def _ask(self, name: str, *command: str) -> str:
        asked = ["lldpcli", "-u", str(self.folder / f"{name}.sock"), *command]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout

    def plug(self, cables: list[Cable]) -> None:
        """Make the namespaces and the links; an end ``host nic`` is a host's adapter."""
        names = {end.partition(" ")[0] for cable in cables for end in cable}
        switches = {end for cable in cables for end in cable if " " not in end}
        for name in sorted(names):
            _ip("netns", "add", self._namespace(name))
            if name in switches:
                _ip("-n", self._namespace(name), "link", "add", "br0", "up", "type", "bridge")
        for number, (one, other) in enumerate(cables):
            host, _, nic = one.partition(" ")
            near, far = nic or f"swp{number}", f"swp{number}"
            at, to = self._namespace(host), self._namespace(other)
            peer = ("peer", "name", far, "netns", to)
            _ip("-n", at, "link", "add", near, "type", "veth", *peer)
            if not nic:
                _ip("-n", at, "link", "set", near, "master", "br0")
            _ip("-n", to, "link", "set", far, "master", "br0")
            _ip("-n", at, "link", "set", near, "up")
            _ip("-n", to, "link", "set", far, "up")

    def listen(self, names: list[str]) -> None:
        """Start a daemon in each of these namespaces."""
        Path("/run/lldpd").mkdir(exist_ok=True)  # Where it locks its unprivileged half in.
        for name in names:
            socket, log = self.folder / f"{name}.sock", self.folder / f"{name}.log"
            # From a file: a daemon is set by a client of its own at its start and told to resume
            # by it, and whoever sets it meanwhile may put it back to a pause without end.
            settings = self.folder / f"{name}.conf"
            settings.write_text(f"configure system hostname {name}\nconfigure lldp tx-interval 1\n")
            inside = ["nsenter", f"--net=/run/netns/{self._namespace(name)}"]
            with log.open("wb") as told:
                self.daemons[name] = subprocess.Popen(
                    [*inside, "lldpd", "-d", "-u", str(socket), "-C", "*", "-O", str(settings)],
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=subprocess.STDOUT,
                )
        for name in names:
            log = self.folder / f"{name}.log"
            waiting.until(
                lambda name=name: self._is_up(name),  # type: ignore[misc]
                f"lldpd of {name}",
                deadline_s=30,
                evidence=log.read_text,
            )

    def unplug(self) -> None:
        """End the daemons, and remove the namespaces with all that is in them."""
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            daemon.wait(DEADLINE_S)
        for path in Path("/run/netns").glob(f"{self.id}-*"):
            _ip("netns", "delete", path.name)

    def _namespace(self, name: str) -> str:
        return f"{self.id}-{name}"


@contextlib.contextmanager
def plugged(cables: list[Cable]) -> Iterator[Fabric]:
    """These cables, with everybody listening."""
    with tempfile.TemporaryDirectory(prefix="lldp-") as folder:
        Path(folder).chmod(0o755)  # The daemons' sockets are reached by their unprivileged halves.
        fabric = Fabric(Path(folder))
        try:
            fabric.plug(cables)
            fabric.listen(sorted({end.partition(" ")[0] for cable in cables for end in cable}))
            yield fabric
        finally:
            fabric.unplug()


def _ip(*arguments: str) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    subprocess.run(["ip", *arguments], env=environment, check=True, timeout=10)
