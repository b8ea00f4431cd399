"""``railwright explain``: how long a step of a workload takes, and what of."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx

from railwright_cli import amounts, profiles, workloads
from railwright_cli.asking import UsageError
from railwright_conversion import workloads as reading
from railwright_scheduler.communication import graph, measured
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.cost import heterogeneous, step
from railwright_scheduler.cost.hardware import MACHINES, NETWORKS, Machine, hops
from railwright_scheduler.cost.step import StepTime
from railwright_scheduler.profile import Profile
from railwright_scheduler.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_topology.wiring import WiringError

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on machines of these kinds, as many of each, one kind after the other, and its
    predicted step; ``latency_s`` of a small message between the farthest two, where the network is
    told; ``profile``, if it was recorded."""

    model: Transformer
    split: Parallelism
    recipe: Recipe
    machines: tuple[Machine, ...]
    latency_s: float = 0.0
    profile: Profile | None = None

    @property
    def nodes(self) -> int:
        """How many machines its ranks fill."""
        return -(-self.split.ranks // self.machines[0].devices)

    @property
    def stands(self) -> list[int]:
        """The kind of each of them; servers of parameters fill more."""
        ranks = self.split.ranks + self.split.servers
        nodes = -(-ranks // self.machines[0].devices)
        return [node * len(self.machines) // nodes for node in range(nodes)]

    @property
    def step(self) -> StepTime:
        """Of what a step takes how long."""
        first, *others = self.machines
        if others:
            return heterogeneous.predict(
                self.workload, self.machines, self.stands, self.communicators
            )
        return step.predict(*self.workload.parts, first, communicators=self.communicators)

    @property
    def workload(self) -> Workload:
        """What is trained, on as many ranks as these."""
        return Workload(self.model, self.split, self.recipe, self.profile)

    @property
    def communicators(self) -> tuple[Communicator, ...]:
        """As recorded, or derived. Raises UsageError where the recorded ones are of another job."""
        try:
            return measured.communicators(self.workload)
        except measured.UnfitError as error:
            raise UsageError(f"--profile: {error}") from error

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.recipe.global_batch * self.recipe.sequence

    @property
    def _least(self) -> int:
        """Ranks that replicas come by: so many that experts and shards are shared evenly."""
        split = self.split
        apart = split.tensor if self.recipe.framework is Framework.DEEPSPEED else 1
        whole = split.expert * split.replicas * apart if self.model.experts else split.replicas
        stage = math.lcm(split.tensor * split.context, whole)
        return math.lcm(stage * split.pipeline, self.machines[0].devices)

    def on(self, nodes: int) -> Case:
        """The same with more replicas, each with as much to do as before. Raises UsageError where
        so many nodes are no whole number of replicas."""
        least = self._least
        ranks = nodes * self.machines[0].devices
        if ranks % least:
            near = max(least, round(ranks / least) * least) / self.machines[0].devices
            rule = f"replicas, with all that they share, come by {least:,} ranks"
            raise UsageError(f"--scale {nodes}: {rule}, such as {near:g} nodes")
        data = ranks // (self.split.ranks // self.split.data)
        batch = self.recipe.global_batch // self.split.data * data
        return replace(
            self,
            split=replace(self.split, data=data),
            recipe=replace(self.recipe, global_batch=batch),
        )


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="the predicted time of a training step, and what it goes into",
        description=__doc__,
    )
    parser.add_argument("file", type=Path, help="a workload: model, parallelism, training")
    parser.add_argument(
        "--machine",
        action="append",
        choices=sorted(MACHINES),
        required=True,
        help="what the nodes are; of several as many each, which follow each other",
    )
    parser.add_argument("--network", choices=sorted(NETWORKS), help="the switches between machines")
    parser.add_argument(
        "--tiers", type=int, choices=range(1, 7), metavar="N", help="so many tiers of them, 1 to 6"
    )
    parser.add_argument("--sharp", action="store_true", help="they add up what crosses them")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="what a pre-run sent, instead of what follows"
    )
    parser.add_argument("--tokens", type=float, metavar="N", help="how many days N tokens take")
    parser.add_argument("--scale", metavar="NODES,…", help="the same on so many nodes each")
    parser.add_argument("-o", "--output", choices=("text", "json", "graphml"), default="text")
    parser.set_defaults(answer=_answer)


def _answer(asked: argparse.Namespace) -> str:
    workload = _workload(asked)
    case = Case(*workload.parts, *_machines(asked), workload.profile)
    _check(case)
    if asked.tokens is not None and not 1 <= asked.tokens < 1e18:
        raise UsageError(f"--tokens {asked.tokens:g}: expected 1 to 1e18")
    scaled = [case.on(nodes) for nodes in _counts(asked.scale)] if asked.scale else []
    if asked.output == "graphml":
        return "\n".join(nx.generate_graphml(_graph(case))) + "\n"
    if asked.output == "json":
        return json.dumps(_json(case, asked.tokens, scaled), indent=1) + "\n"
    return "\n".join([*_text(case, asked.tokens), *_scaling(scaled), ""])


def _workload(asked: argparse.Namespace) -> Workload:
    """The file's; what was recorded apart from it comes first."""
    try:
        workload = reading.workload(workloads.read(asked.file))
    except WiringError:
        raise
    except ValueError as error:
        raise UsageError(f"{asked.file}: profile: {error}") from error
    return replace(workload, profile=profiles.read(asked.profile)) if asked.profile else workload


def _machines(asked: argparse.Namespace) -> tuple[tuple[Machine, ...], float]:
    """The machines on their network, and the latency between the farthest two."""
    found = tuple(MACHINES[name] for name in asked.machine)
    if asked.network is None:
        if asked.sharp or asked.tiers:
            raise UsageError(f"--tiers and --sharp are of a network: --network {min(NETWORKS)}")
        return found, 0.0
    switches, tiers = NETWORKS[asked.network], asked.tiers or 1
    if asked.sharp and not switches.sharp_s:
        raise UsageError(f"--sharp: switches of {switches.name} add nothing up")
    behind = tuple(each.behind(switches, tiers, sharp=asked.sharp) for each in found)
    return behind, switches.latency_s(hops(tiers))


def _check(case: Case) -> None:
    """Raises UsageError where the machines cannot do what the workload asks."""
    for machine in case.machines:
        if why := step.unsupported_reason(case.workload, machine):
            raise UsageError(f"--machine {machine.name}: {why}")
    if len(case.stands) < len(case.machines):
        raise UsageError(
            f"--machine: {len(case.machines)} for {len(case.stands)} nodes, expected no more"
        )


def _counts(said: str) -> list[int]:
    counts = [part.strip() for part in said.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 1 << 14 for part in counts):
        raise UsageError(f"--scale {said}: expected numbers of nodes, such as 8,64,512")
    return [int(part) for part in counts]


def _graph(case: Case) -> nx.Graph:
    """Ranks, and the bytes that each two exchange in a step."""
    found = nx.Graph()
    found.add_nodes_from(range(case.split.ranks + case.split.servers))
    for (one, other), size in graph.pairs(case.communicators).items():
        found.add_edge(one, other, bytes=size)
    return found


def _text(case: Case, tokens: float | None) -> Iterator[str]:
    took = case.step
    rate = case.tokens / took.total
    nodes = f"{case.nodes:,} × {case.machines[0].name}"
    if len(case.machines) > 1:
        counts = (case.stands.count(kind) for kind in range(len(case.machines)))
        kinds = zip(counts, case.machines, strict=True)
        nodes = " and ".join(f"{count:,} × {each.name}" for count, each in kinds)
    yield (
        f"{case.split.ranks:,} ranks on {nodes}: a step of "
        f"{case.tokens:,} tokens takes {amounts.seconds(took.total)}"
    )
    yield f"{rate:,.0f} tokens/s, {rate / case.split.ranks:,.0f} a device"
    if tokens is not None:
        yield f"{tokens:,.0f} tokens take {_days(case, tokens):,.1f} days"
    if case.latency_s:
        yield f"{case.latency_s * 1e6:.3g} us between the farthest two"
    yield ""
    for name, seconds in took.parts:
        yield f"  {name:<18} {amounts.seconds(seconds):>10} {seconds / took.total:>6.1%}"
    yield ""
    yield "sent by one rank in a step:"
    sending = (each for each in case.communicators if each.ranks > 1)
    for each in sorted(sending, key=lambda each: (-each.sent, each.name)):
        how = ", ".join(dict.fromkeys(traffic.collective.value for traffic in each.traffic))
        yield f"  {each.name:<18} {amounts.size(each.sent):>10} among {each.ranks:,}: {how}"


def _scaling(cases: list[Case]) -> Iterator[str]:
    if not cases:
        return
    yield ""
    yield "  nodes   ranks       step  tokens/s a device  efficiency"
    first = _per_rank(cases[0])
    for case in cases:
        rate = _per_rank(case)
        yield (
            f"  {case.nodes:>5,} {case.split.ranks:>7,} {amounts.seconds(case.step.total):>10} "
            f"{rate:>18,.0f} {rate / first:>11.1%}"
        )


def _json(case: Case, tokens: float | None, scaled: list[Case]) -> dict[str, Any]:
    took = case.step
    answer: dict[str, Any] = {
        "ranks": case.split.ranks,
        "nodes": case.nodes,
        "machines": [each.name for each in case.machines],
        "stepSeconds": took.total,
        "parts": dict(took.parts),
        "tokensPerSecond": case.tokens / took.total,
        "communicators": [
            {"name": each.name, "ranks": each.ranks, "sentBytes": each.sent}
            for each in case.communicators
        ],
        "scale": [
            {"nodes": each.nodes, "stepSeconds": each.step.total, "tokensPerRank": _per_rank(each)}
            for each in scaled
        ],
    }
    if case.latency_s:
        answer["latencySeconds"] = case.latency_s
    if tokens is not None:
        answer["days"] = _days(case, tokens)
    return answer


def _per_rank(case: Case) -> float:
    """Tokens a second."""
    return case.tokens / case.step.total / case.split.ranks


def _days(case: Case, tokens: float) -> float:
    return tokens / case.tokens * case.step.total / DAY_S
