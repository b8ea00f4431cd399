"""What ``lldpctl -f json0`` says on each host: which switch each of its interfaces is plugged into.

    {"node-1": {"lldp": [{"interface": [{"name": "ens1f0", "via": "LLDP",
      "chassis": [{"id": [{"type": "mac", "value": "b8:59:9f:00:00:01"}],
                   "name": [{"value": "leaf-1"}],
                   "capability": [{"type": "Bridge", "enabled": true}]}],
      "port": [{"id": [{"type": "ifname", "value": "swp1"}]}]}]}]}, "node-2": …}

The outputs of all hosts stand in one object, each under its host's name. ``-f json`` says the same
with single values in place of lists of one, and with names as keys; it is read too. Neighbours that
switch nothing (a host on a cable, the processor on an adapter's own board) are passed over, and so
are those of interfaces that software makes. Speeds
are those of the standard's table of media, which ends at 100 Gb/s: of anything faster nothing is
told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from railwright_topology.port_assignment import natural
from railwright_topology.sources import devices, strict_json
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.strict_json import JsonValue
from railwright_topology.wiring import Uplink, Wiring, WiringError, name_switches

SOURCE = "LLDP"

SWITCHING = frozenset({"Bridge", "Router", "CVLAN", "SVLAN"})
"""What a switch is; the last two are the components of a VLAN bridge (IEEE 802.1AB-2016)."""
HOSTING = frozenset({"Station", "Wlan", "Tel", "Docsis"})
"""What no switch of a fabric is: a host, an access point, a telephone, a cable modem."""
UNIQUE = frozenset({"mac", "ip"})
"""Types of chassis ids of which no two switches have one by chance."""
NAMED = frozenset({"local"})
"""A type that an operator gives, so one may be on two switches: then their names differ."""

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_MEDIUM = re.compile(r"([0-9]{1,4})(Gig|G)?base", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Neighbour:
    interface: str
    via: str
    type: str
    value: str
    name: str
    capabilities: Mapping[str, bool]
    """What it can be, and whether it is."""
    bytes_per_s: int

    @property
    def id(self) -> str:
        return f"{self.type} {self.value}"

    def is_switch(self, hosts: set[str]) -> bool:
        """Whether it is a switch, and none of these hosts."""
        active = {name for name, is_active in self.capabilities.items() if is_active}
        is_host = active & HOSTING or {self.name, self.name.partition(".")[0]} & hosts
        return bool(active & SWITCHING) and not is_host


_Cable = tuple[str, _Neighbour]
"""A host, and the switch that it has seen."""


def parse(text: str) -> Wiring:
    """Merge what all hosts show; a neighbour that breaks a rule is left out. Raises WiringError
    where nothing is left."""
    omissions = Omissions(SOURCE)
    outputs = strict_json.read(SOURCE, text, omissions)
    if not isinstance(outputs, dict):
        raise WiringError(SOURCE, 1, "the outputs stand in an object, each under its host's name")
    strange: list[str] = []
    cables = [*_cables(outputs, strange, omissions)]
    if not cables and (sentences := omissions.sentences):
        raise WiringError(SOURCE, 0, sentences[0])
    names: dict[str, set[str]] = {}
    for _, neighbour in cables:
        names.setdefault(neighbour.id, set()).add(neighbour.name)
    doubtful = {*_doubtful(names, strange)}
    uplinks = [
        Uplink(host, neighbour.interface, neighbour.id, neighbour.bytes_per_s)
        for host, neighbour in cables
        if neighbour.id not in doubtful
    ]
    switches = sorted({uplink.switch for uplink in uplinks})
    named = name_switches({id_: min(names[id_] - {""}, default="") for id_ in switches})
    return Wiring(
        SOURCE,
        tuple(named.values()),
        tuple(uplinks),
        strange=(*omissions.sentences, *sorted(strange)),
    )


def _cables(
    outputs: Mapping[str, object], strange: list[str], omissions: Omissions
) -> Iterator[_Cable]:
    hosts = {name for host in outputs for name in (host, host.partition(".")[0])}
    for host in sorted(outputs, key=natural):
        if not _HOST.fullmatch(host):
            omissions.note(0, f"{host[:80]!r} is no name of a host")
            continue
        ports: dict[str, list[_Neighbour]] = {}
        for neighbour in _neighbours(host, outputs[host], omissions):
            if not devices.is_by_software(neighbour.interface):
                ports.setdefault(neighbour.interface, []).append(neighbour)
        for interface in sorted(ports, key=natural):
            switch = _switch(f"{host} {interface} sees", ports[interface], hosts, strange)
            if switch is not None:
                yield host, switch


def _doubtful(names: Mapping[str, set[str]], strange: list[str]) -> Iterator[str]:
    """The ids that two switches may have."""
    for id_, called in names.items():
        if len(called) > 1:
            strange.append(f"{id_} is called {' and '.join(map(repr, sorted(called)))}")
            if not id_.startswith("mac "):
                strange.append(f"{id_} may be two switches: what is plugged into it is left out")
                yield id_


def _switch(
    port: str, neighbours: Sequence[_Neighbour], hosts: set[str], strange: list[str]
) -> _Neighbour | None:
    """The one switch behind a port. A switch may speak other protocols beside LLDP; they call it by
    other ids, so they do not count."""
    switching = [neighbour for neighbour in neighbours if neighbour.is_switch(hosts)]
    strange += (
        f"{port} {neighbour.name or neighbour.value!r}, which does not say what it is"
        for neighbour in neighbours
        if not neighbour.capabilities
    )
    by_id = {neighbour.id: neighbour for neighbour in switching if neighbour.via == "LLDP"}
    if not switching:
        return None
    if len(by_id) != 1:
        what = ", ".join(sorted(by_id)) or f"none by LLDP, one by {switching[0].via[:40]}"
        strange.append(f"{port} {len(by_id)} switches ({what}): it is left out")
        return None
    [found] = by_id.values()
    if not found.value or found.type not in UNIQUE | NAMED:
        rule = f"that has no id of its own ({found.type} {found.value!r}): it is left out"
        strange.append(f"{port} a switch {found.name!r} {rule}")
        return None
    return found


def _neighbours(host: str, document: object, omissions: Omissions) -> Iterator[_Neighbour]:
    entries: list[JsonValue] = []
    with omissions.part():
        if not isinstance(document, dict) or "lldp" not in document:
            raise WiringError(SOURCE, 0, f"{host}: the document is an object with lldp in it")
        for top in _objects(JsonValue(omissions, document["lldp"], f"{host}: lldp")):
            with omissions.part():
                for ports in _objects(top["interface"]):
                    with omissions.part():
                        entries += _unfolded(ports, "via")
    for entry in entries:
        with omissions.part():
            if not (interface := _text(entry["name"])):
                raise entry["name"].error("each neighbour is on an interface")
            yield _neighbour(interface, replace(entry, path=f"{host}: {interface}"))


def _neighbour(interface: str, entry: JsonValue) -> _Neighbour:
    nothing = replace(entry, content={})
    chassis = [each for folded in _objects(entry["chassis"]) for each in _unfolded(folded, "id")]
    switch = next(iter(chassis), nothing)
    id_ = next(iter(_objects(switch["id"])), nothing)
    type_, name = _text(id_["type"]), _text(id_["value"])
    capabilities = _objects(switch["capability"])
    return _Neighbour(
        interface,
        _text(entry["via"]) or "LLDP",
        type_,
        name.lower() if type_ == "mac" else name,
        _text(switch["name"]),
        {_text(each["type"]): each["enabled"].content is True for each in capabilities},
        _speed(entry),
    )


def _speed(entry: JsonValue) -> int:
    for port in _objects(entry["port"]):
        for negotiated in _objects(port["auto-negotiation"]):
            if medium := _MEDIUM.match(_text(negotiated["current"])):
                return int(medium[1]) * (1_000_000_000 if medium[2] else 1_000_000) // 8
    return 0


def _objects(value: JsonValue) -> list[JsonValue]:
    """A list of objects, or the one object that stands for a list of one."""
    found = value.content if isinstance(value.content, list) else [value.content]
    if value.content is None:
        return []
    if not all(isinstance(each, dict) for each in found):
        raise value.error(f"an object stands here, not {str(value.content)[:80]!r}")
    return [replace(value, content=each) for each in found]


def _unfolded(folded: JsonValue, mark: str) -> list[JsonValue]:
    """Objects with their names in them. Folded, they are keyed by their names; ``mark`` is what
    only one that is not folded has."""
    fields: Any = folded.content
    if mark in fields or "name" in fields:
        return [folded]
    unfolded: Any = ((name, each.content) for name in fields for each in _objects(folded[name]))
    return [replace(folded, content={"name": name, **its}) for name, its in unfolded]


def _text(value: JsonValue) -> str:
    """A text; ``[{"value": "text"}]`` is one too. Empty where it is not there."""
    content = value.content
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    if isinstance(content, dict):
        content = content.get("value")
    return "" if content is None else replace(value, content=content).printable()
