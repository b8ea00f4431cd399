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

import collections
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from railwright_topology.plugs import natural
from railwright_topology.sources import devices, strict_json
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import Switch, Uplink, Wiring, WiringError

SOURCE = "LLDP"

SWITCHING = frozenset({"Bridge", "Router"})
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
    id: str
    name: str
    can: Mapping[str, bool]
    """What it can be, and whether it is."""
    bytes_per_s: int


def parse(text: str) -> Wiring:
    """Merge what all hosts say; a neighbour that breaks a rule is left out. Raises WiringError
    where nothing is left."""
    omissions = Omissions(SOURCE)
    outputs = strict_json.read(SOURCE, text, omissions)
    if not isinstance(outputs, dict):
        raise WiringError(SOURCE, 1, "the outputs stand in an object, each under its host's name")
    hosts = {name for host in outputs for name in (host, host.partition(".")[0])}
    strange: list[str] = []
    plugged: list[tuple[str, str, _Neighbour]] = []
    for host in sorted(outputs, key=natural):
        if not _HOST.fullmatch(host):
            omissions.note(0, f"{host[:80]!r} is no name of a host")
            continue
        ports: dict[str, list[_Neighbour]] = {}
        for neighbour in _neighbours(host, outputs[host], omissions):
            if not devices.is_by_software(neighbour.interface):
                ports.setdefault(neighbour.interface, []).append(neighbour)
        for interface in sorted(ports, key=natural):
            chosen = _switch(f"{host} {interface}", ports[interface], hosts, strange)
            if chosen is not None:
                plugged.append((host, interface, chosen))
    if not plugged and (sentences := omissions.sentences):
        raise WiringError(SOURCE, 0, sentences[0])
    names: dict[str, set[str]] = {}
    for _, _, neighbour in plugged:
        names.setdefault(_id(neighbour), set()).add(neighbour.name)
    doubtful = set()
    for id_, called in names.items():
        if len(called) > 1:
            strange.append(f"{id_} is called {' and '.join(map(repr, sorted(called)))}")
            if not id_.startswith("mac "):
                doubtful.add(id_)
                strange.append(f"{id_} may be two switches: what is plugged into it is left out")
    uplinks = [
        Uplink(host, interface, _id(neighbour), neighbour.bytes_per_s)
        for host, interface, neighbour in plugged
        if _id(neighbour) not in doubtful
    ]
    switches = sorted({uplink.switch for uplink in uplinks})
    return Wiring(
        SOURCE,
        tuple(_named(switches, names)),
        tuple(uplinks),
        strange=(*omissions.sentences, *sorted(strange)),
    )


def _named(switches: Iterable[str], names: Mapping[str, set[str]]) -> Iterator[Switch]:
    """Each by its name; those of one name, or of none, by their ids too."""
    called = {id_: min(names[id_] - {""}, default="") for id_ in switches}
    frequent = collections.Counter(called.values())
    for id_, name in called.items():
        yield Switch(id_, name if name and frequent[name] == 1 else f"{name} {id_}".strip())


def _id(neighbour: _Neighbour) -> str:
    return f"{neighbour.type} {neighbour.id}"


def _switch(
    port: str, seen: list[_Neighbour], hosts: set[str], strange: list[str]
) -> _Neighbour | None:
    """The one switch behind a port. A switch may speak other protocols beside LLDP; they call it by
    other ids, so they do not count."""
    switching = [
        neighbour
        for neighbour in seen
        if any(neighbour.can.get(role) for role in SWITCHING)
        and not any(neighbour.can.get(role) for role in HOSTING)
        and not {neighbour.name, neighbour.name.partition(".")[0]} & hosts
    ]
    strange += (
        f"{port} sees {neighbour.name or neighbour.id!r}, which does not say what it is"
        for neighbour in seen
        if not neighbour.can
    )
    speaking = {_id(neighbour): neighbour for neighbour in switching if neighbour.via == "LLDP"}
    if not switching:
        return None
    if len(speaking) != 1:
        what = ", ".join(sorted(speaking)) or f"none by LLDP, one by {switching[0].via[:40]}"
        strange.append(f"{port} sees {len(speaking)} switches ({what}): it is left out")
        return None
    [found] = speaking.values()
    if not found.id or found.type not in UNIQUE | NAMED:
        strange.append(
            f"{port} sees a switch {found.name!r} that has no id of its own"
            f" ({found.type} {found.id!r}): it is left out"
        )
        return None
    return found


def _neighbours(host: str, document: object, omissions: Omissions) -> Iterator[_Neighbour]:
    entries: list[dict[str, object]] = []
    with omissions.part():
        if not isinstance(document, dict) or "lldp" not in document:
            raise _error(host, "the document is an object with lldp in it")
        for top in _each(host, "lldp", document["lldp"]):
            with omissions.part():
                for named in _each(host, "lldp.interface", top.get("interface")):
                    with omissions.part():
                        entries += _unfolded(host, "lldp.interface", named, mark="via")
    for entry in entries:
        with omissions.part():
            yield _neighbour(host, entry)


def _error(host: str, rule: str) -> WiringError:
    return WiringError(SOURCE, 0, f"{host}: {rule}")


def _neighbour(host: str, entry: Mapping[str, object]) -> _Neighbour:
    interface = _said(host, "interface.name", entry.get("name"))
    if not interface:
        raise _error(host, "interface.name: each neighbour is on an interface")
    where = f"{interface}.chassis"
    chassis: Mapping[str, object] = {}
    for folded in _each(host, where, entry.get("chassis")):
        chassis = next(iter(_unfolded(host, where, folded, mark="id")), {})
    id_ = next(iter(_each(host, f"{where}.id", chassis.get("id"))), {})
    type_ = _said(host, f"{where}.id.type", id_.get("type"))
    value = _said(host, f"{where}.id.value", id_.get("value"))
    can = {
        _said(host, f"{where}.capability.type", each.get("type")): each.get("enabled") is True
        for each in _each(host, f"{where}.capability", chassis.get("capability"))
    }
    return _Neighbour(
        interface,
        _said(host, f"{interface}.via", entry.get("via")) or "LLDP",
        type_,
        value.lower() if type_ == "mac" else value,
        _said(host, f"{where}.name", chassis.get("name")),
        can,
        _speed(host, f"{interface}.port", entry),
    )


def _speed(host: str, where: str, entry: Mapping[str, object]) -> int:
    for port in _each(host, where, entry.get("port")):
        for negotiated in _each(host, where, port.get("auto-negotiation")):
            said = _said(host, f"{where}.auto-negotiation.current", negotiated.get("current"))
            if medium := _MEDIUM.match(said):
                return int(medium[1]) * (1_000_000_000 if medium[2] else 1_000_000) // 8
    return 0


def _each(host: str, where: str, value: object) -> list[dict[str, object]]:
    """A list of objects, or the one object that stands for a list of one."""
    values: list[object] = value if isinstance(value, list) else [] if value is None else [value]
    found = [item for item in values if isinstance(item, dict)]
    if len(found) < len(values):
        raise _error(host, f"{where}: an object stands here, not {str(value)[:80]!r}")
    return found


def _unfolded(
    host: str, where: str, value: dict[str, object], *, mark: str
) -> list[dict[str, object]]:
    """Objects with their names in them. Folded, they are keyed by their names; ``mark`` is what
    only one that is not folded has."""
    if mark in value or "name" in value:
        return [value]
    return [
        {"name": name, **item} for name, its in value.items() for item in _each(host, where, its)
    ]


def _said(host: str, where: str, value: object) -> str:
    """A text; ``[{"value": "text"}]`` is one too."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("value")
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 1024 or not value.isprintable():
        raise _error(host, f"{where}: a short text stands here, not {str(value)[:80]!r}")
    return value
