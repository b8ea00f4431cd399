"""``railwright explain``: the predicted time of a training step, and what it consists of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
import typer
from rich.console import RenderableType
from rich.table import Table

from railwright_api import workload as api
from railwright_api.schema import RANKS_MAX
from railwright_cli import amounts, profiles, yaml_files
from railwright_cli.arguments import one_of
from railwright_cli.errors import UsageError
from railwright_cli.progress import shown_progress
from railwright_cli.tables import show_document
from railwright_cli.terminal import show
from railwright_conversion import workloads
from railwright_scheduler.communication import graph, measured
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.cost import heterogeneous, step
from railwright_scheduler.cost.hardware import MACHINES, NETWORKS, Machine, Switches, hops
from railwright_scheduler.cost.step import StepTime
from railwright_scheduler.model.workload import Framework, Workload

DAY_S = 86_400
TOKENS_MAX = 1e18
SCALE_NODES_MAX = 1 << 14
NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True)
class Case:
    """A workload on machines and its predicted step.

    Of several kinds of ``machines`` there are as many nodes each, one kind after the other.
    ``latency_s`` is that of a small message between the farthest two, 0 without a network.
    """

    workload: Workload
    machines: tuple[Machine, ...]
    latency_s: float = 0.0

    @property
    def ranks(self) -> int:
        """Ranks that compute."""
        return self.workload.split.ranks

    @property
    def nodes(self) -> int:
        """Machines that its ranks fill."""
        return -(-self.ranks // self.machines[0].devices)

    @property
    def kinds(self) -> list[int]:
        """The kind of each machine."""
        return [node * len(self.machines) // self.nodes for node in range(self.nodes)]

    @cached_property
    def step(self) -> StepTime:
        """The predicted time of each part of a step."""
        first, *others = self.machines
        if others:
            return heterogeneous.predict(
                self.workload, self.machines, self.kinds, self.communicators
            )
        return step.predict(*self.workload.parts, first, communicators=self.communicators)

    @property
    def communicators(self) -> tuple[Communicator, ...]:
        """As recorded, or derived. Raises UsageError for the profile of another job."""
        try:
            return measured.communicators(self.workload)
        except measured.UnfitError as error:
            raise UsageError(f"--profile: {error}") from error

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.workload.recipe.global_batch * self.workload.recipe.sequence

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, over all ranks."""
        return self.tokens / self.step.total

    @property
    def _unit(self) -> int:
        """Ranks of the fewest replicas among which experts and shards are shared evenly."""
        model, split, recipe = self.workload.parts
        apart = split.tensor if recipe.framework is Framework.DEEPSPEED else 1
        whole = split.expert * split.replicas * apart if model.experts else split.replicas
        stage = math.lcm(split.tensor * split.context, whole)
        return math.lcm(stage * split.pipeline, self.machines[0].devices)

    def on(self, nodes: int) -> Case:
        """More or fewer replicas, each with as much to do. Raises UsageError if they do not fill
        so many nodes."""
        unit, ranks = self._unit, nodes * self.machines[0].devices
        if ranks % unit:
            near = max(unit, round(ranks / unit) * unit) / self.machines[0].devices
            rule = f"replicas, with all that they share, come by {unit:,} ranks"
            raise UsageError(f"--scale {nodes}: {rule}, such as {near:g} nodes")
        _, split, recipe = self.workload.parts
        data = ranks // (split.ranks // split.data)
        batch = recipe.global_batch // split.data * data
        split, recipe = replace(split, data=data), replace(recipe, global_batch=batch)
        return replace(self, workload=replace(self.workload, split=split, recipe=recipe))


def explain(
    file: Annotated[Path, typer.Argument(help="workload: model, parallelism, training")],
    machine: Annotated[
        list[Machine],
        one_of(MACHINES, "--machine", "kind of the nodes; several kinds have as many nodes each"),
    ],
    network: Annotated[
        Switches | None, one_of(NETWORKS, "--network", "switches between machines")
    ] = None,
    tiers: Annotated[int, typer.Option(min=1, max=6, help="tiers of switches")] = 1,
    sharp: Annotated[bool, typer.Option("--sharp", help="switches reduce data (SHARP)")] = False,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="profile of a pre-run to predict from")
    ] = None,
    tokens: Annotated[
        float | None, typer.Option(metavar="N", help="show how many days N tokens take")
    ] = None,
    scale: Annotated[
        str, typer.Option(metavar="NODES,…", help="also predict these numbers of nodes")
    ] = "",
    servers: Annotated[
        int,
        typer.Option(min=0, max=RANKS_MAX, help="ranks of the role of the parameter servers"),
    ] = 0,
    output: Annotated[
        Literal["text", "json", "yaml", "graphml"], typer.Option("-o", "--output")
    ] = "text",
) -> None:
    """Predict the time of a training step."""
    workload = _workload(file, profile, servers)
    case = Case(workload, *_machines(machine, network, tiers, sharp=sharp))
    _check(case)
    if tokens is not None and not 1 <= tokens < TOKENS_MAX:
        raise UsageError(f"--tokens {tokens:g}: expected 1 to {TOKENS_MAX:g}")
    scaled = [case.on(nodes) for nodes in _counts(scale)]
    with shown_progress("predicting"):
        print_all = _prepare(case, tokens, scaled, output)
    print_all()


def _prepare(
    case: Case, tokens: float | None, scaled: list[Case], output: str
) -> Callable[[], None]:
    """Compute what is printed. Returns what prints it."""
    if output == "graphml":
        return partial(typer.echo, "\n".join(nx.generate_graphml(_graph(case))))
    if output in ("json", "yaml"):
        return partial(show_document, _json(case, tokens, scaled), output)
    return partial(show, *_text(case, tokens), *_scaling(scaled))


def _workload(file: Path, profile: Path | None, servers: int) -> Workload:
    """The file's workload; a profile of its own counts before the one in the file."""
    stored = yaml_files.read(file, api.Workload)
    if stored.opaque:
        raise UsageError(f"{file}: opaque: a step is predicted of a transformer")
    split = stored.parallelism
    if (split.servers is None) is (servers > 0):
        raise UsageError(
            f"--servers {servers}: parallelism.servers is {split.servers or 'not set'}, expected "
            + ("the number of its ranks" if split.servers else "0")
        )
    try:
        ranks = split.replica_ranks * (split.data or 1)
        workload = workloads.stated(stored, ranks, servers=servers)
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
    return replace(workload, profile=profiles.read(profile)) if profile else workload


def _machines(
    machines: list[Machine], network: Switches | None, tiers: int, *, sharp: bool
) -> tuple[tuple[Machine, ...], float]:
    """The machines on their network, and the latency between the farthest two."""
    if network is None:
        if sharp or tiers > 1:
            raise UsageError(f"--tiers and --sharp are of a network: --network {min(NETWORKS)}")
        return tuple(machines), 0.0
    if sharp and not network.sharp_s:
        raise UsageError(f"--sharp: switches of {network.name} do not reduce data")
    behind = tuple(each.behind(network, tiers, sharp=sharp) for each in machines)
    return behind, network.latency_s(hops(tiers))


def _check(case: Case) -> None:
    """Raise UsageError where the machines cannot do what the workload needs."""
    for machine in case.machines:
        if why := step.unsupported_reason(case.workload, machine):
            raise UsageError(f"--machine {machine.name}: {why}")
    kinds, nodes = len(case.machines), len(case.kinds)
    if nodes < kinds:
        raise UsageError(f"--machine: {kinds} for {nodes} nodes, expected no more")


def _counts(scale: str) -> list[int]:
    counts = [part.strip() for part in scale.split(",")] if scale else []
    if not all(NUMBER.fullmatch(part) and 1 <= int(part) <= SCALE_NODES_MAX for part in counts):
        raise UsageError(f"--scale {scale}: expected numbers of nodes, such as 8,64,512")
    return [int(part) for part in counts]


def _graph(case: Case) -> nx.Graph:
    """Ranks, and the bytes that each two exchange in a step."""
    found = nx.Graph()
    found.add_nodes_from(range(case.ranks))
    for pair, size in graph.pairs(case.communicators).items():
        found.add_edge(*pair, bytes=size)
    return found


def _text(case: Case, tokens: float | None) -> Iterator[RenderableType]:
    took, per_second, kinds = case.step, case.tokens_per_s, case.kinds
    numbers = [kinds.count(kind) for kind in range(len(case.machines))]
    each_kind = zip(numbers, case.machines, strict=True)
    nodes = " and ".join(f"{number:,} × {each.name}" for number, each in each_kind)
    yield (
        f"{case.ranks:,} ranks on {nodes}: a step of {case.tokens:,} tokens takes "
        f"{amounts.seconds(took.total)}"
    )
    yield f"{per_second:,.0f} tokens/s, {per_second / case.ranks:,.0f} a device"
    if tokens is not None:
        yield f"{tokens:,.0f} tokens take {_days(case, tokens):,.1f} days"
    if case.latency_s:
        yield f"{case.latency_s * 1e6:.3g} us between the farthest two"
    parts = ((name, amounts.seconds(s), f"{s / took.total:.1%}") for name, s in took.parts)
    yield from ("", _table("lrr", parts), "", "sent by one rank in a step:")
    sent = []
    for each in sorted(case.communicators, key=lambda each: (-each.sent, each.name)):
        how = ", ".join(dict.fromkeys(traffic.collective.value for traffic in each.traffic))
        if each.ranks > 1:
            sent.append((each.name, amounts.size(each.sent), f"among {each.ranks:,}: {how}"))
    yield _table("lrl", sent)


def _scaling(cases: list[Case]) -> Iterator[RenderableType]:
    rows = []
    for case in cases:
        per_second, first = (each.tokens_per_s / each.ranks for each in (case, cases[0]))
        took = amounts.seconds(case.step.total)
        rows.append(
            (
                f"{case.nodes:,}",
                f"{case.ranks:,}",
                took,
                f"{per_second:,.0f}",
                f"{per_second / first:.1%}",
            )
        )
    if rows:
        yield ""
        yield _table("rrrrr", rows, "nodes", "ranks", "step", "tokens/s a device", "efficiency")


def _table(aligned: str, rows: Iterable[tuple[str, ...]], *head: str) -> RenderableType:
    """A table without lines; each column is aligned l or r."""
    table = Table(box=None, padding=(0, 0, 0, 2), show_header=bool(head))
    for at, side in enumerate(aligned):
        table.add_column(head[at] if head else "", justify="right" if side == "r" else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _json(case: Case, tokens: float | None, scaled: list[Case]) -> dict[str, Any]:
    took = case.step
    answer: dict[str, Any] = {
        "ranks": case.ranks,
        "nodes": case.nodes,
        "machines": [each.name for each in case.machines],
        "stepSeconds": took.total,
        "parts": dict(took.parts),
        "tokensPerSecond": case.tokens_per_s,
        "communicators": [
            {"name": each.name, "ranks": each.ranks, "sentBytes": each.sent}
            for each in case.communicators
        ],
        "scale": [
            {
                "nodes": each.nodes,
                "stepSeconds": each.step.total,
                "tokensPerRank": each.tokens_per_s / each.ranks,
            }
            for each in scaled
        ],
    }
    if case.latency_s:
        answer["latencySeconds"] = case.latency_s
    if tokens is not None:
        answer["days"] = _days(case, tokens)
    return answer


def _days(case: Case, tokens: float) -> float:
    return tokens / case.tokens_per_s / DAY_S
