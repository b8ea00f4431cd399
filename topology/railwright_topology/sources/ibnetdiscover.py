"""What ``ibnetdiscover`` prints of an InfiniBand fabric -> its wiring.

    Switch  65 "S-fc6a1c0300dd2c40"   # "MF0;leaf-1:MQM9700/U1" enhanced port 0 lid 7 lmc 0
    [1]     "H-b83fd20300d1ae46"[1](b83fd20300d1ae46)   # "node-1 mlx5_0" lid 64 4xNDR
    Ca      1 "H-b83fd20300d1ae46"    # "node-1 mlx5_0"

A cable stands under each of its ends; the end at a switch counts. An adapter's description is the
host's name and the device's, as the driver sets it; one that was never set names no host, and one
that two adapters have names neither. A SHARP aggregation node shows up as an adapter of its switch.

With ``-g`` the nodes of each chassis stand together below a line of their own, and a port has the
number on its outside too (``[1][ext 12]``). With ``-f`` numbers follow the rate.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import Switch, Trunk, Uplink, Wiring, WiringError, name_switches

SOURCE = "ibnetdiscover"

LANE_BITS_PER_S = {
    "SDR": 2_000_000_000,
    "DDR": 4_000_000_000,
    "QDR": 8_000_000_000,
    "FDR10": 10_000_000_000,
    "FDR": 13_636_363_636,
    "EDR": 25_000_000_000,
    "HDR": 50_000_000_000,
    "NDR": 100_000_000_000,
    "XDR": 200_000_000_000,
}
"""Data on one lane and in one direction, after line coding: 8b/10b to QDR, 64b/66b from FDR10 on
(InfiniBand Architecture Specification, volume 2)."""

NODES_MAX = 1 << 18
NAME_MAX = 253

_HEAD = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
_PORT = re.compile(
    r'\[(\d+)\](?:\[ext \d+\]|\(\w+\))?\s+"([^"]+)"\[(\d+)\](?:\[ext \d+\])?\s*(?:\(\w+\))?\s*#(.*)'
)
_RATE = re.compile(r"\b(\d+)x([A-Z]+\d*|\?{3})(?: s=\d+ w=\d+ v=\d+)?(?: slot \d+| \(scp\))?$")
_DEVICE = re.compile(r"(\S+)\s+((?:mlx\d+_|ib|hfi\d+_|HCA-)\w+)")
_FACT = re.compile(r"\w+=\S+(\s+#.*)?$")
_CHASSIS = re.compile(r"Chassis \d+( \(guid 0x[0-9a-f]+\))?|Non-Chassis Nodes")
_AGGREGATION = "Aggregation Node"


@dataclass(frozen=True, slots=True)
class _Cable:
    line: int
    end: str
    far: str
    far_port: int
    bytes_per_s: int


def parse(text: str) -> Wiring:
    """Read an output. Raises WiringError where no switch, or no host on one, is in it, or where it
    was cut off."""
    omissions = Omissions(SOURCE)
    names: dict[str, str] = {}
    cables: list[_Cable] = []
    unread: list[int] = []
    for number, section, line in _sections(text, names, unread, omissions):
        if port := _PORT.match(line):
            bytes_per_s = _bytes_per_s(port[4], number, omissions)
            cables.append(_Cable(number, section, port[2], int(port[3]), bytes_per_s))
        else:
            omissions.note(number, f"{line[:80]!r} is neither a node nor one of its ports")
    if not any(map(_is_switch, names)):
        raise omissions.refuse("no switch is in it")
    _check_whole(names, cables, unread=len(unread))
    for cable in cables:
        if cable.far not in names:
            rule = f"{cable.far[:80]!r} is at the other end, and described nowhere"
            omissions.note(cable.line, rule)
    whole = [cable for cable in cables if _is_switch(cable.end) and cable.far in names]
    return _wiring(names, whole, omissions)


def _check_whole(names: Mapping[str, str], cables: Sequence[_Cable], *, unread: int) -> None:
    """Refuse an output that was cut off: more nodes are missing, to which cables lead, than there
    are unread ones, or ones to which no cable leads, whose id may be a wrong one. Routers, which
    have no hosts, are missing in a whole output too, of a chassis with ``-g``."""
    ends = {cable.far for cable in cables if not cable.far.startswith("R-")}
    for is_switch in (True, False):
        reached = {node for node in ends if _is_switch(node) is is_switch}
        described = {node for node in names if _is_switch(node) is is_switch}
        missing = reached - described
        if len(missing) > unread + len(described - reached):
            rule = f"it was cut off: a cable leads to {min(missing)[:80]!r}, described nowhere"
            raise WiringError(SOURCE, cables[-1].line, rule)


def _sections(
    text: str, names: dict[str, str], unread: list[int], omissions: Omissions
) -> Iterator[tuple[int, str, str]]:
    """The lines of ports with the node that they are of, while ``names`` collects the nodes, and
    ``unread`` the lines of those that cannot be read. The ports of such a node, or of one that
    is there already, are left out with it."""
    section: str | None = None
    starts = True
    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if line.startswith("#"):
            continue
        if not line or _FACT.match(line) or _CHASSIS.fullmatch(line):
            # The next node begins, whether its first line is there or not.
            section, starts = None, True
        elif head := _HEAD.match(line):
            section, starts = None, False
            if head[2] in names:
                rule = f"{head[2][:80]!r} is described twice: the first counts"
                omissions.note(number, rule)
            elif len(names) == NODES_MAX or not _is_name(head[3]):
                rule = f"at most {NODES_MAX} nodes, of up to {NAME_MAX} printable characters"
                omissions.note(number, rule)
                unread.append(number)
            else:
                section = head[2]
                names[section] = head[3]
        elif starts and not line.startswith("["):
            omissions.note(number, f"{line[:80]!r} is neither a node nor one of its ports")
            if number < len(lines):
                # The last line may be what is left of one that was cut off.
                unread.append(number)
            section, starts = None, False
        elif section is not None:
            yield number, section, line
        elif starts:
            omissions.note(number, f"{line[:80]!r} is a port of no node")
            unread.append(number)
            starts = False


def _is_name(text: str) -> bool:
    return len(text) <= NAME_MAX and text.isprintable()


def _wiring(names: Mapping[str, str], cables: Sequence[_Cable], omissions: Omissions) -> Wiring:
    """What the cables of switches join."""
    switches = name_switches(
        {node: _switch_name(name) for node, name in names.items() if _is_switch(node)}
    )
    strange: list[str] = []
    uplinks = _uplinks(names, switches, cables, strange)
    if not uplinks:
        rule = ": ".join(["no host is on a switch", *sorted(strange)[:1]])
        raise WiringError(SOURCE, 1, rule)
    # A cable between two switches is there at both of its ends.
    trunks = collections.Counter(
        ((cable.end, cable.far), cable.bytes_per_s)
        for cable in cables
        if _is_switch(cable.far) and cable.end < cable.far
    )
    return Wiring(
        SOURCE,
        tuple(switches[node] for node in sorted(switches)),
        tuple(uplinks),
        tuple(Trunk(ends, count, speed) for (ends, speed), count in sorted(trunks.items())),
        (*omissions.sentences, *sorted(strange)),
    )


def _uplinks(
    names: Mapping[str, str],
    switches: dict[str, Switch],
    cables: Sequence[_Cable],
    strange: list[str],
) -> list[Uplink]:
    """Those of adapters with a name of their own. Mark the switches that reduce."""
    found: dict[tuple[str, str], list[Uplink]] = {}
    for cable in cables:
        if _is_switch(cable.far):
            continue
        name, at = names[cable.far], switches[cable.end].name
        if _AGGREGATION in name:
            switches[cable.end] = replace(switches[cable.end], reduces=True)
        elif device := _DEVICE.match(name):
            nic = device[2] if cable.far_port == 1 else f"{device[2]}/{cable.far_port}"
            uplink = Uplink(device[1], nic, cable.end, cable.bytes_per_s)
            found.setdefault((uplink.host, uplink.nic), []).append(uplink)
        else:
            strange.append(f"adapter {cable.far} on {at} is called {name!r}: names no host")
        if not cable.bytes_per_s:
            strange.append(f"{name or cable.far} on {at} shows no speed")
    for key, its in found.items():
        if len(its) > 1:
            called = " ".join(key)
            strange.append(f"{len(its)} adapters are called {called!r}: none of them counts")
    return [its[0] for _, its in sorted(found.items()) if len(its) == 1]


def _is_switch(node: str) -> bool:
    return node.startswith("S-")


def _switch_name(name: str) -> str:
    """``MF0;leaf-1:MQM9700/U1`` is leaf-1, ``MF0;core:CS8500/L01/U1`` is core/L01/U1: a board of
    a chassis; anything else is the name."""
    inner = re.match(r"[^;]*;([^:]+):[^/]*(/.*)?", name)
    if inner is None:
        return name
    board = inner[2] if inner[2] and inner[2].count("/") > 1 else ""
    return inner[1] + board


def _bytes_per_s(comment: str, line: int, omissions: Omissions) -> int:
    """Bytes a second of a cable, from the end of its comment (``4xNDR``); 0 where the tool did not
    know (``4x???``)."""
    found = _RATE.search(comment.rstrip())
    if found is not None and found[2] == "???":
        return 0
    if found is None or found[2] not in LANE_BITS_PER_S:
        speeds = ", ".join(LANE_BITS_PER_S)
        omissions.note(line, f"a port ends with its rate, such as 4xNDR; known: {speeds}")
        return 0
    return int(found[1]) * LANE_BITS_PER_S[found[2]] // 8
