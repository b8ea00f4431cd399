"""Networks whose tiers are known, and probes of them that err as real ones do.

Latency and bandwidth of a pair follow from the tier at which its nodes meet. Both vary from look to
look, and a hiccup of a busy host makes one look several times as far, never nearer.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from railwright_topology.probing.readings import Reading
from railwright_topology.probing.survey import Survey

Path = tuple[int, ...]


@dataclass(slots=True)
class PlantedNetwork:
    """``paths`` gives each node its domain at each tier, the nearest first. ``latencies_s`` and
    ``bandwidths`` are those of pairs that meet at each tier, and last of pairs that meet at none.

    Pairs of one tier differ by ``spread``, and looks at one pair by ``noise``, both deviations of a
    logarithm. A node in ``slow`` has a link of its own: seconds on top, and at most so many bytes a
    second. The latency of every other pair, whatever its tier, is that of hosts which were asleep:
    so many times as long.
    """

    paths: Mapping[str, Path]
    latencies_s: Sequence[float]
    bandwidths: Sequence[float]
    seed: int = 0
    noise: float = 0.15
    spread: float = 0.0
    hiccups: float = 0.05
    failures: float = 0.0
    slow: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    asleep: float = 1.0
    looks: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def probe(self, pair: tuple[str, str]) -> Reading:
        """One look."""
        self.looks[min(pair), max(pair)] += 1
        if self.dead & {*pair} or self._random.random() < self.failures:
            return Reading()
        tier = self.tier(*pair)
        latency_s, bandwidth = self.latencies_s[tier], self.bandwidths[tier]
        for node in pair:
            more_s, most = self.slow.get(node, (0.0, math.inf))
            latency_s, bandwidth = latency_s + more_s, min(bandwidth, most)
        own = Random(f"{self.seed} {min(pair)} {max(pair)}")
        latency_s *= math.exp(own.gauss(0, self.spread))
        bandwidth *= math.exp(own.gauss(0, self.spread))
        latency_s *= own.choice((1.0, self.asleep))
        return Reading(latency_s * self._error(), bandwidth / self._error())

    def tier(self, one: str, other: str) -> int:
        """The tier at which two nodes meet."""
        pairs = zip(self.paths[one], self.paths[other], strict=True)
        return next((tier for tier, (a, b) in enumerate(pairs) if a == b), len(self.paths[one]))

    def _error(self) -> float:
        error = math.exp(self._random.gauss(0, self.noise))
        return error * self._random.uniform(2, 8) if self._random.random() < self.hiccups else error


def tree(
    random: Random, nodes: int, branching: Sequence[int], *, evenness: float = 1.0
) -> dict[str, Path]:
    """Nodes in shuffled order; ``branching`` says into how many parts the whole, and then each
    domain, is divided: of sizes that differ the more, the smaller the evenness."""
    domains: list[tuple[Path, list[int]]] = [((), list(range(nodes)))]
    numbers = [0] * len(branching)
    for depth, parts in enumerate(branching):
        divided = []
        for path, members in domains:
            for part in _divide(random, members, parts, evenness):
                divided.append(((numbers[depth], *path), part))
                numbers[depth] += 1
        domains = divided
    paths = {f"node-{node}": path for path, members in domains for node in members}
    names = list(paths)
    random.shuffle(names)
    return {name: paths[name] for name in names}


def _divide(random: Random, members: list[int], parts: int, evenness: float) -> list[list[int]]:
    parts = min(parts, len(members))
    weights = [random.uniform(evenness, 1) for _ in range(parts)]
    bounds = [0]
    for part in range(parts):
        left = len(members) - bounds[-1] - (parts - part - 1)
        share = weights[part] / sum(weights[part:])
        bounds.append(bounds[-1] + max(1, min(left, round(share * (len(members) - bounds[-1])))))
    return [members[low:high] for low, high in itertools.pairwise(bounds)]


def planted(
    nodes: int,
    branching: Sequence[int],
    *,
    seed: int,
    evenness: float = 0.5,
    noise: float = 0.15,
    failures: float = 0.0,
) -> PlantedNetwork:
    """One whose tiers differ by a factor of 2.5 in latency and of 2 in bandwidth."""
    tiers = range(len(branching) + 1)
    return PlantedNetwork(
        tree(Random(seed), nodes, branching, evenness=evenness),
        [50e-6 * 2.5**tier for tier in tiers],
        [1e9 / 2**tier for tier in tiers],
        seed=seed,
        noise=noise,
        failures=failures,
    )


def truths(network: PlantedNetwork) -> tuple[dict[str, str], ...]:
    """The groupings that can be told apart, and last that all are in one."""
    depth = max(map(len, network.paths.values()), default=0)
    found: list[dict[str, str]] = []
    for tier in range(depth + 1):
        grouping = {
            node: str(path[tier]) if tier < depth else "all" for node, path in network.paths.items()
        }
        if not found or len({*grouping.values()}) < len({*found[-1].values()}):
            found.append(grouping)
    return tuple(found)


def survey(network: PlantedNetwork, nodes: Iterable[str] | None = None, **options: int) -> Survey:
    """A survey of it, carried out."""
    found = Survey(tuple(network.paths if nodes is None else nodes), **options)
    while pairs := found.next_round():
        found.tell({pair: network.probe(pair) for pair in pairs})
    return found


def adjusted_rand_index(one: Mapping[str, object], other: Mapping[str, object]) -> float:
    """How far two groupings agree, 1 if wholly, about 0 by chance (Hubert and Arabie, 1985). Who is
    in one grouping alone stands by himself in the other."""
    nodes = sorted({*one, *other})
    first = [one.get(node, ("alone", node)) for node in nodes]
    second = [other.get(node, ("alone", node)) for node in nodes]

    def pairs(labels: Iterable[object]) -> int:
        return sum(math.comb(count, 2) for count in collections.Counter(labels).values())

    both, ones, others = pairs(zip(first, second, strict=True)), pairs(first), pairs(second)
    expected = ones * others / max(1, math.comb(len(nodes), 2))
    most = (ones + others) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)
