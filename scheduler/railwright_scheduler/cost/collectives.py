"""How long a collective takes, by the algorithms that communication libraries run.

``size`` is bytes of the buffer that a rank holds: what it reduces, what it has gathered in the end,
or what it sends to all. Formulas are those of NCCL's own model (src/graph/tuning.cc) and of
nccl-tests (doc/PERFORMANCE.md), unless an algorithm names another: each step has its latency, and
what crosses the slowest link decides. Of several algorithms the fastest is taken, as NCCL's tuner
does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.communication.grid import Axis, Grid, distinct_rows
from railwright_scheduler.communication.traffic_matrix import ranks_on_nodes
from railwright_scheduler.cost import hardware
from railwright_scheduler.cost.hardware import Algorithm, Host, LinkCost, Machine
from railwright_scheduler.model.workload import Routing

REMEMBERED = 64
"""Grids whose shapes are kept: a step is predicted again for every order of the same nodes."""

CROSSINGS = 4
"""Of a host's memory by each byte that its device sends and gets: written to it and read from it on
the way there, and on the way back."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate: ``per_node`` on each of ``nodes``, which are of one ``machine``, with
    as many adapters a node."""

    machine: Machine
    nodes: int
    per_node: int

    @property
    def ranks(self) -> int:
        """How many take part."""
        return self.nodes * self.per_node

    @property
    def mesh_share(self) -> float:
        """The share of a device's bandwidth inside the node that the group has: in a mesh, that of
        the links to its other ranks there."""
        mesh = self.machine.mesh
        return min(1.0, (self.per_node - 1) / mesh) if mesh and self.per_node > 1 else 1.0

    @property
    def link(self) -> LinkCost:
        """Between two of its ranks, on two nodes if there are several."""
        if self.nodes > 1:
            return self.machine.network
        link = self.machine.intra_node
        return replace(link, bandwidth=link.bandwidth / max(1, self.machine.mesh))


def groups(communicator: Communicator, machine: Machine) -> list[Group]:
    """The different shapes of a communicator's groups, for ranks that fill one machine after the
    other. Of an uneven group the fullest node counts, whose ranks share least."""
    shapes = _shapes(communicator.grid, communicator.axes, machine.devices)
    return [Group(machine, *shape) for shape in shapes]


@functools.lru_cache(maxsize=REMEMBERED)
def _shapes(ranks: Grid, axes: tuple[Axis, ...], devices: int) -> tuple[tuple[int, int], ...]:
    nodes = np.sort(ranks.groups(*axes) // devices, axis=1)
    rows, _ = distinct_rows(nodes - nodes[:, :1])
    return tuple(sorted({*map(tuple, shapes(rows).tolist())}))


def shapes(rows: Ints) -> Ints:
    """For each group, which has the nodes of its ranks in a row, ascending: how many nodes it is
    on, and how many ranks are on the fullest of them."""
    _, counts = ranks_on_nodes(rows)
    return np.column_stack([np.count_nonzero(counts, axis=1), counts.max(axis=1)]).astype(np.int64)


def joined(machines: Sequence[Machine]) -> Machine:
    """The machine that represents all of these in a collective: the slowest of each part, and the
    algorithms that all have. Switches do not reduce between different kinds.

    Adapters of all makers interoperate. They read device memory directly within one maker, and
    between makers if each of the devices is declared to support it. Otherwise data goes through the
    memory of both hosts: copied there, sent, and copied on. Pieces are pipelined, so the slowest
    part decides the bandwidth, and the latency is the sum of all parts.
    """
    first, *others = machines
    if not others:
        return first
    homogeneous = all(each.name == first.name for each in others)
    return replace(
        first,
        intra_node=_slowest([each.intra_node for each in machines]),
        network=_network(machines),
        all_to_all=min(each.all_to_all for each in machines),
        host=_host([each.host for each in machines]),
        nvls=first.nvls if homogeneous else None,
        sharp_s=first.sharp_s if homogeneous else None,
        algorithms=tuple(
            its for its in first.algorithms if all(its in each.algorithms for each in others)
        ),
        mesh=max(each.mesh for each in machines),
    )


def _network(machines: Sequence[Machine]) -> LinkCost:
    """Latency and bandwidth of one adapter."""
    adapters = _slowest([each.network for each in machines])
    makers = {each.device.maker for each in machines}
    if len(makers) == 1 or all(each.device.direct for each in machines):
        return adapters
    bandwidth = min(adapters.bandwidth, *map(_through_host_bytes_per_s, machines))
    return LinkCost(bandwidth, adapters.step_s + 2 * hardware.LAUNCH_S)


def _through_host_bytes_per_s(machine: Machine) -> float:
    """Of each device, while all devices of the node send and get."""
    return min(machine.host.copy, machine.host.memory / (CROSSINGS * machine.devices))


def _slowest(links: Sequence[LinkCost]) -> LinkCost:
    return LinkCost(min(each.bandwidth for each in links), max(each.step_s for each in links))


def _host(hosts: Sequence[Host]) -> Host:
    return Host(*map(min, zip(*map(astuple, hosts), strict=True)))


def all_reduce_s(size: float, group: Group) -> float:
    """Every rank has the sum of all."""
    return 0.0 if group.ranks == 1 else min(_all_reduced_s(size, group))


def reduce_scatter_s(size: float, group: Group) -> float:
    """Half of an all-reduce in a ring: each rank has its part of the sum. The other half, an
    all-gather, takes as long."""
    return 0.0 if group.ranks == 1 else hardware.COLLECTIVE_S + _round_s(size, group)


def all_to_all_s(size: float, group: Group) -> float:
    """Each rank sends another part to each other one.

    With PXN what leaves the node first goes to the rank there that is on its rail, and then takes
    one message for each other node ("Doubling all2all performance with NCCL 2.12", NVIDIA, 2022);
    without, one for each of its ranks.
    """
    if group.ranks == 1:
        return 0.0
    within = size * (group.per_node - 1) / group.ranks
    beyond = size * (group.ranks - group.per_node) / group.ranks
    within_s = within / (group.mesh_share * group.machine.all_to_all)
    moved_s = within_s + beyond / group.machine.network.bandwidth
    messages_s = _messages_s(group)
    if Algorithm.PXN not in group.machine.algorithms:
        messages_s += (group.nodes - 1) * (group.per_node - 1) * group.machine.network.step_s
    return hardware.COLLECTIVE_S + messages_s + moved_s


def dispatch_s(size: float, routing: Routing, group: Group) -> float:
    """Each rank sends its tokens to the ranks that have their experts, or gets them back.

    A token crosses the network once to each node, to the rank on its own rail, and is passed on
    inside to each rank, while others still cross: the slower of the two decides (DeepSeek-V3
    Technical Report, 2024, 3.2.2). Before that all wait for each other, clear what they receive
    into, and wait again (deepseek-ai/DeepEP, cached_notify).
    """
    if group.ranks == 1:
        return 0.0
    nodes, ranks = routing.reached(group.nodes, group.per_node)
    within = size * ranks * (group.per_node - 1) / group.per_node
    beyond = size * nodes * (group.nodes - 1) / group.nodes
    within_s = within / (group.mesh_share * group.machine.all_to_all)
    moved_s = max(within_s, beyond / group.machine.network.bandwidth)
    awaited_s = group.machine.intra_node.step_s
    awaited_s += group.machine.network.step_s if group.nodes > 1 else 0.0
    return 2 * awaited_s + hardware.LAUNCH_S + hardware.COLLECTIVE_S + _messages_s(group) + moved_s


def served_s(size: float, servers: int, group: Group) -> float:
    """Each rank pushes to each server an equal part, or pulls it.

    Servers are on other nodes. What reaches one adapter does so one after the other, a server's as
    much as a rank's.
    """
    link = group.machine.network
    return link.step_s + max(group.ranks / servers, 1.0) * size / link.bandwidth


def send_s(size: float, link: LinkCost) -> float:
    """One message."""
    return link.step_s + size / link.bandwidth


def _all_reduced_s(size: float, group: Group) -> Iterator[float]:
    """By each algorithm that the group's library and hardware have."""
    yield hardware.COLLECTIVE_S + 2 * _round_s(size, group)
    if Algorithm.TREE in group.machine.algorithms:
        yield _tree_s(size, group)
    if Algorithm.TWO_LEVEL in group.machine.algorithms and 1 < group.nodes < group.ranks:
        yield _two_level_s(size, group)
    if Algorithm.NVLS in group.machine.algorithms and group.machine.nvls and group.nodes == 1:
        yield group.machine.nvls.step_s + _switched_s(size, group.per_node, group.machine.nvls)
    if Algorithm.SHARP in group.machine.algorithms and group.machine.sharp_s and group.nodes > 1:
        yield group.machine.sharp_s + _summed_s(size, group)


def _tree_s(size: float, group: Group) -> float:
    """Two trees of nodes, each for half of the bytes, in each node a chain: all go up and down."""
    steps_s = (group.per_node - 1) * hardware.TREE_NVLINK_STEP_S
    steps_s += (group.nodes.bit_length() - 1) * group.machine.network.step_s
    moved_s = 2 * size / (hardware.TREE_SHARE * _bandwidth(group))
    return hardware.COLLECTIVE_S + 2 * steps_s + moved_s


def _two_level_s(size: float, group: Group) -> float:
    """Each rank sums up its part within the node, then along its rail, then within the node
    again (Cho et al., 2019)."""
    intra_node, across = replace(group, nodes=1), replace(group, per_node=1)
    return 2 * reduce_scatter_s(size, intra_node) + all_reduce_s(size / group.per_node, across)


def _summed_s(size: float, group: Group) -> float:
    """Switches reduce: an adapter sends its node's part once, and receives the result once (Graham
    et al., 2020). The ranks of a node reduce before and broadcast afterwards, pipelined."""
    beyond_s = size / (group.machine.network.bandwidth * group.per_node)
    if group.per_node == 1:
        return beyond_s
    steps_s = 2 * (hardware.SHARP_NVLINK_STEP_S + (group.per_node - 1) * hardware.SHARP_RANK_S)
    return steps_s + max(_summed_inside_s(size, group), beyond_s)


def _summed_inside_s(size: float, group: Group) -> float:
    """The bytes between the ranks of a node for an all-reduce: all but their own part twice, or
    those of NVLS."""
    ranks = group.per_node
    sent_s = 2 * (ranks - 1) / ranks * size / _intra_node_bytes_per_s(group)
    if Algorithm.NVLS in group.machine.algorithms and group.machine.nvls:
        return min(sent_s, _switched_s(size, ranks, group.machine.nvls))
    return sent_s


def _switched_s(size: float, ranks: int, nvls: LinkCost) -> float:
    """Switches of a node sum up: each rank sends all of its bytes there, and its part of the sums
    once more, which reaches all from there (Klenk et al., 2020)."""
    return (ranks + 1) / ranks * size / nvls.bandwidth


def _messages_s(group: Group) -> float:
    inside_s = (group.per_node - 1) * group.machine.intra_node.step_s
    return inside_s + (group.nodes - 1) * group.machine.network.step_s


def _round_s(size: float, group: Group) -> float:
    """Once around the ring, which crosses into each other node once."""
    steps, crossings = group.ranks - 1, group.nodes - 1
    latency_s = (steps - crossings) * group.machine.intra_node.step_s
    latency_s += crossings * group.machine.network.step_s
    return latency_s + steps / group.ranks * size / _bandwidth(group)


def _bandwidth(group: Group) -> float:
    """Of the slowest link between neighbours of a ring or a tree, all of a node's adapters one."""
    beyond = group.machine.network.bandwidth * group.per_node
    intra_node = _intra_node_bytes_per_s(group)
    return intra_node if group.nodes == 1 else min(intra_node, beyond)


def _intra_node_bytes_per_s(group: Group) -> float:
    return group.mesh_share * group.machine.intra_node.bandwidth
