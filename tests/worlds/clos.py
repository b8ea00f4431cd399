"""Three-layer Clos networks with rails, as cables: what a site's cabling plan would say.

Hosts stand in groups. Of each group, adapter r of every host is plugged into ToR r; the ToRs of
rail r of one block meet in its leaves, and all leaves in the spine.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from railwright_topology.wiring import Switch, Trunk, Uplink, Wiring

Cable = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Clos:
    """How many of each; ``leaves`` are a block's for one rail."""

    blocks: int = 2
    groups: int = 4
    hosts: int = 16
    rails: int = 8
    leaves: int = 2
    spines: int = 4

    def cables(self) -> Iterator[Cable]:
        """Every cable by its two ends; an adapter is ``host nic``."""
        for block in range(self.blocks):
            for group in range(self.groups):
                for rail in range(self.rails):
                    tor = f"tor-{block}-{group}-{rail}"
                    for host in self.group(block, group):
                        yield f"{host} mlx5_{rail}", tor
                    for leaf in range(self.leaves):
                        yield tor, f"leaf-{block}-{rail}-{leaf}"
            for rail in range(self.rails):
                for leaf in range(self.leaves):
                    for spine in range(self.spines):
                        yield f"leaf-{block}-{rail}-{leaf}", f"spine-{spine}"

    def group(self, block: int, group: int) -> tuple[str, ...]:
        """The hosts of a group."""
        first = (block * self.groups + group) * self.hosts
        return tuple(f"node-{number:04d}" for number in range(first, first + self.hosts))


def plugged(kind: str, hosts: int, tors: str, nics: int) -> list[Cable]:
    """So many hosts of a kind, eight on the same switches, each adapter in one of its own."""
    return [
        (f"{kind}-{host} mlx5_{nic}", f"tor-{tors}-{host // 8}-{nic}")
        for host in range(hosts)
        for nic in range(nics)
    ]


def upwards(cables: Sequence[Cable]) -> list[Cable]:
    """All switches that hosts are plugged into have a cable to the same spine."""
    return [*cables, *((switch, "spine") for switch in sorted({end for _, end in cables}))]


def netfile(cables: list[Cable]) -> str:
    """These cables in the format that ibsim reads."""
    ports: dict[str, list[tuple[str, int]]] = {}
    lines: dict[str, list[str]] = {}
    for one, other in cables:
        at = {end: len(ports.setdefault(end, [])) + 1 for end in (one, other)}
        for end, far in ((one, other), (other, one)):
            ports[end].append((far, at[far]))
            lines.setdefault(end, []).append(f'[{at[end]}] "{far}"[{at[far]}]')
    return "\n".join(
        "\n".join([f'{_kind(end)} {len(its)} "{end}" # "{_said(end)}"', *its, ""])
        for end, its in lines.items()
    )


def _kind(end: str) -> str:
    return "Hca" if " " in end else "Switch"


def _said(end: str) -> str:
    return end if " " in end else f"MF0;{end}:MQM9700/U1"


def wiring(cables: list[Cable], *, bytes_per_s: int = 50_000_000_000) -> Wiring:
    """These cables as a source would tell them, all of one speed; switches are called by name."""
    uplinks, trunks = [], collections.Counter[Cable]()
    for one, other in cables:
        if " " in one:
            host, nic = one.split(" ")
            uplinks.append(Uplink(host, nic, other, bytes_per_s))
        else:
            trunks[min(one, other), max(one, other)] += 1
    ends = {end for cable in cables for end in cable if " " not in end}
    return Wiring(
        "plan",
        tuple(Switch(end, end) for end in sorted(ends)),
        tuple(uplinks),
        tuple(Trunk(pair, count, bytes_per_s) for pair, count in sorted(trunks.items())),
    )
