"""What a run has most of: the kinds of events, how often they happen, and how slow requests are.

A fault shows in combinations: a write lands late after its object was made again, a leader that
does not know of its successor acts on old caches, or the nodes are cut off while gangs train. A run
in which all kinds of events are equally frequent reaches few of them. So a run has an emphasis and
a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from simulator.links import LinkFaults
from simulator.site_weights import SITE_WEIGHTS

OF_REQUESTS = (0, 0, 10, 80)
OF_WATCHES = (0, 0, 5, 40)
DELAYS_S = (0.01, 0.05, 0.3)


@dataclass(frozen=True, slots=True)
class Emphasis:
    """``weights`` are how often which event happens, ``pauses_s`` mean times between two events,
    ``busy_s`` how long events happen, ``steps`` how long a job trains, ``jobs`` how many names
    there are, ``replicas`` how many pods their first role has, ``nodes`` how many nodes there are
    at first, ``uplinks`` the bandwidths that the uplinks of a rack may have, ``blind`` how often a
    leader does not find out that it has lost the Lease, and ``late`` and ``lagging`` how many of a
    thousand requests and deliveries are so.

    ``workloads`` is the share of jobs that declare one, and ``pre_runs`` the share of these that
    have a pre-run. ``backoffs``, ``deadlines_s`` and ``two_groups`` say what jobs are like (those
    of all runs, if empty); with ``roles`` they have one to so many roles, which may share groups.
    ``torn`` is the share of checkpoints that are torn, ``late_commits`` that of launchers that
    commit after the revocation. Ranks go on to crash for ``crashing_s`` when the faults are over.
    With ``has_site`` the real controllers run (``site``).
    """

    name: str
    weights: Mapping[str, int]
    pauses_s: tuple[float, ...] = (0.2, 0.7, 2.0)
    busy_s: float = 100.0
    steps: tuple[int, ...] = (3, 12, 40, 150)
    jobs: tuple[int, ...] = (1, 2, 4)
    replicas: tuple[int, ...] = (1, 2, 3, 4)
    nodes: tuple[int, ...] = (2, 3, 4, 5)
    workloads: float = 0.0
    pre_runs: float = 0.0
    uplinks: tuple[float, ...] = (2.0, 2.0, 0.05)
    blind: tuple[float, ...] = (0.0, 0.0, 0.5)
    late: tuple[int, ...] = OF_REQUESTS
    lagging: tuple[int, ...] = OF_WATCHES
    backoffs: tuple[tuple[int, int], ...] = ()
    deadlines_s: tuple[int | None, ...] = ()
    two_groups: float = 0.0
    roles: int = 0
    torn: float = 0.0
    late_commits: float = 0.0
    crashing_s: float = 0.0
    has_site: bool = False

    def draw_faults(self, faults: LinkFaults, rng: Random) -> None:
        """How often requests and watches fail in this run."""
        faults.delay_s = rng.choice(DELAYS_S)
        faults.unconnected = rng.choice(OF_REQUESTS)
        faults.lost = rng.choice(OF_REQUESTS)
        faults.unanswered = rng.choice(OF_REQUESTS)
        faults.late = rng.choice(self.late)
        faults.throttled = rng.choice(OF_REQUESTS)
        faults.cut = rng.choice(OF_WATCHES)
        faults.missed = rng.choice(OF_WATCHES)
        faults.lagging = rng.choice(self.lagging)


REPLACEMENTS = Emphasis(
    "replacements",
    {
        "job created": 8,
        "job replaced": 8,
        "job deleted": 1,
        "pod deleted": 3,
        "pod touched": 3,
        "take over": 2,
        "watches stall": 2,
        "suspend": 1,
        "resume job": 2,
        "refuse": 2,
        "allow": 1,
        "node resized": 1,
        "node removed": 1,
        "node added": 2,
        "compact": 1,
    },
    pauses_s=(0.7, 2.0, 3.0),
    jobs=(1, 1, 2),
    late=(40, 150, 300),
    lagging=(0, 40, 200),
)
LEADERS = Emphasis(
    "leaders",
    {
        "job created": 8,
        "job replaced": 1,
        "job deleted": 2,
        "suspend": 4,
        "resume job": 6,
        "take over": 6,
        "watches stall": 6,
        "pause": 4,
        "resume": 6,
        "lose": 2,
        "crash": 1,
        "pod deleted": 2,
        "pod touched": 2,
        "refuse": 2,
        "allow": 1,
        "compact": 1,
    },
    pauses_s=(0.7, 1.5, 3.0),
    blind=(0.7, 1.0),
    late=(0, 80, 200),
    lagging=(0, 40, 200),
)
CUTS = Emphasis(
    "cuts",
    {
        "job created": 6,
        "resume job": 2,
        "take over": 2,
        "pause": 1,
        "resume": 3,
        "watches stall": 1,
        "cut": 4,
        "heal": 2,
        "node cut": 1,
        "node up": 3,
        "node down": 1,
        "hang": 2,
        "save": 1,
        "rank crash": 1,
        "link": 1,
    },
    pauses_s=(4.0, 8.0),
    busy_s=300.0,
    steps=(40, 150, 300),
)
OF_USERS = {"job created": 8, "job replaced": 2, "suspend": 1, "resume job": 3}
OF_REPLICAS = {"take over": 2, "crash": 1, "pause": 1, "resume": 3, "lose": 1, "watches stall": 1}
OF_MACHINES = {"node down": 1, "node up": 3, "pod deleted": 1}
DEADLINES = Emphasis(
    "deadlines",
    {**OF_USERS, **OF_REPLICAS, **OF_MACHINES, "suspend": 2, "resume job": 4, "rank crash": 4},
    pauses_s=(2.0, 4.0, 8.0),
    busy_s=200.0,
    steps=(12, 40, 150, 400),
    backoffs=((1, 86_400), (6, 86_400)),
    deadlines_s=(None, 20, 60, 120, 300),
)
CRASHES = Emphasis(
    "crashes",
    {**OF_USERS, **OF_REPLICAS, **OF_MACHINES, "rank crash": 8},
    pauses_s=(2.0, 4.0, 8.0),
    steps=(40, 150, 300),
    backoffs=((0, 300), (1, 300), (1, 300), (2, 600), (6, 86_400)),
    crashing_s=400.0,
)
HANGS = Emphasis(
    "hangs",
    {"job created": 8, "hang": 3, "save": 4, "take over": 1, "pause": 1, "resume": 3}
    | {"node down": 1, "node up": 3},
    pauses_s=(4.0, 8.0, 12.0),
    busy_s=300.0,
    steps=(40, 150, 300),
)
CHECKPOINTS = Emphasis(
    "checkpoints",
    {**OF_USERS, **OF_REPLICAS, **OF_MACHINES, "rank crash": 8, "node cut": 2, "hang": 1},
    pauses_s=(2.0, 4.0, 8.0),
    busy_s=200.0,
    steps=(40, 150, 300),
    backoffs=((2, 600), (6, 86_400)),
    two_groups=0.7,
    torn=0.3,
    late_commits=0.7,
)
MOVES = Emphasis(
    "moves",
    {"job created": 16, "link": 10, "take over": 2, "crash": 1, "watches stall": 1, "suspend": 1}
    | {"resume job": 4, "pod deleted": 1, "save": 1, "node down": 1, "node up": 3, "node added": 1},
    pauses_s=(8.0, 12.0),
    busy_s=240.0,
    steps=(80, 120),
    jobs=(1, 2),
    replicas=(3, 4),
    nodes=(7, 8),
    workloads=0.9,
    uplinks=(2.0, 0.05),
)
PRE_RUNS = Emphasis(
    "pre-runs",
    {
        "job created": 8,
        "job deleted": 1,
        "job replaced": 1,
        "job reshaped": 1,
        "profiling changed": 2,
        "suspend": 1,
        "resume job": 3,
        "take over": 2,
        "crash": 1,
        "watches stall": 1,
        "pod deleted": 4,
        "node down": 1,
        "node up": 3,
        "refuse": 1,
        "allow": 3,
        "rank crash": 1,
        "hang": 1,
    },
    pauses_s=(1.0, 2.0, 4.0),
    busy_s=150.0,
    steps=(6, 20, 60),
    nodes=(3, 4, 5),
    workloads=0.9,
    pre_runs=0.8,
)
ORPHANS = Emphasis(
    "orphans",
    {
        "job created": 14,
        "job deleted": 3,
        "job replaced": 4,
        "suspend": 1,
        "resume job": 2,
        "orphaned pod": 8,
        "kubelet stalls": 8,
        "pod deleted": 2,
        "rank crash": 1,
        "take over": 2,
        "crash": 1,
        "watches stall": 1,
        "node cut": 1,
        "node up": 3,
        "node resized": 1,
        "node removed": 1,
        "node added": 2,
    },
    jobs=(2, 4),
    two_groups=0.8,
)
QUEUE = Emphasis(
    "queue",
    {
        "job created": 20,
        "job deleted": 2,
        "job replaced": 2,
        "suspend": 2,
        "resume job": 3,
        "foreign pod": 1,
        "node resized": 1,
        "node removed": 1,
        "node added": 1,
        "take over": 1,
        "crash": 1,
        "rank crash": 2,
        "pod deleted": 2,
        "refuse": 1,
        "allow": 1,
    },
    steps=(3, 12, 40),
    jobs=(8,),
)
CHANGES = Emphasis(
    "changes",
    {
        "job created": 8,
        "job reshaped": 10,
        "suspend": 3,
        "resume job": 6,
        "job deleted": 1,
        "pod deleted": 2,
        "take over": 1,
        "watches stall": 1,
        "node resized": 1,
        "refuse": 1,
        "allow": 2,
    },
    pauses_s=(0.3, 0.7, 1.5),
    late=(40, 150, 300),
    lagging=(0, 40, 200),
)
EVICTIONS = Emphasis(
    "evictions",
    {
        "job created": 8,
        "job replaced": 1,
        "resume job": 2,
        "pod deleted": 4,
        "pod evicted": 4,
        "node pressure": 6,
        "node cordoned": 3,
        "node uncordoned": 3,
        "node down": 1,
        "node cut": 1,
        "node up": 1,
        "foreign pod": 2,
        "rank crash": 1,
        "take over": 1,
        "watches stall": 1,
    },
    pauses_s=(8.0, 16.0),
    busy_s=600.0,
    steps=(40, 150, 400),
    nodes=(4, 5, 6),
)
CONTROLLERS = Emphasis(
    "controllers",
    SITE_WEIGHTS,
    pauses_s=(6.0, 15.0, 40.0),
    busy_s=1200.0,
    steps=(40, 150, 400),
    nodes=(4, 5),
    has_site=True,
)
ROLES = Emphasis(
    "roles",
    {**OF_USERS, **OF_REPLICAS, **OF_MACHINES, "job reshaped": 2, "rank crash": 3, "hang": 1},
    pauses_s=(1.0, 3.0, 8.0),
    busy_s=200.0,
    steps=(12, 40, 150),
    nodes=(4, 5, 6),
    workloads=0.5,
    pre_runs=0.3,
    roles=4,
)
ALL = Emphasis(
    "all",
    {
        "job created": 8,
        "crash": 3,
        "pause": 3,
        "resume": 3,
        "take over": 2,
        "lose": 2,
        "rank crash": 3,
        "hang": 1,
        "save": 2,
        "pod deleted": 3,
        "node down": 2,
        "node cut": 2,
        "node up": 5,
        "node removed": 1,
        "node added": 2,
        "node resized": 1,
        "foreign pod": 2,
        "suspend": 2,
        "resume job": 3,
        "job deleted": 2,
        "job replaced": 3,
        "job reshaped": 2,
        "refuse": 1,
        "inflate": 1,
        "allow": 3,
        "compact": 1,
        "link": 1,
        "watches stall": 1,
        "pod touched": 1,
        "cut": 1,
        "heal": 3,
        "node cordoned": 1,
        "node uncordoned": 2,
        "node pressure": 1,
        "pod evicted": 1,
    },
)
TURNS = (
    *(ALL, REPLACEMENTS, LEADERS, CUTS, DEADLINES),
    *(CRASHES, HANGS, CHECKPOINTS, MOVES, PRE_RUNS, ORPHANS, QUEUE, CHANGES, EVICTIONS),
)
EMPHASES = {each.name: each for each in (*TURNS, ROLES, CONTROLLERS)}


def of_seed(seed: int) -> str:
    """The name of the emphasis of a seed, where all but ROLES and CONTROLLERS take turns."""
    return TURNS[seed % len(TURNS)].name


def draw_weights(emphasis: Emphasis, rng: Random) -> Mapping[str, int]:
    """How often which event happens in one run: of all kinds, most in few runs."""
    weights = emphasis.weights
    if emphasis is not ALL:
        return weights
    drawn = {name: weight * rng.choice((0, 0, 1, 4)) for name, weight in weights.items()}
    return drawn | {"job created": rng.choice((4, 12)), "take over": max(1, drawn["take over"])}
