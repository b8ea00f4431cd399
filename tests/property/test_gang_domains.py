"""The domains of a gang of several roles, against those of one role and an exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

from fixtures import GPU, cluster, job, node, table
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.snapshot import Node, Role, Snapshot, TopologyConstraints
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import Rails

LEVELS = ("spine", "block", "rack")
CPU = "cpu"
_TIERS = ("", "", "spine", "block", "rack")
_REQUESTS = ({GPU: 8}, {GPU: 4}, {GPU: 2}, {CPU: 4_000}, {GPU: 8, CPU: 2_000})


def _nodes(rng: Random, *, racks: int, rack_nodes: int, railed: bool) -> list[Node]:
    """Nodes in random racks, in random order; some of their GPUs are in use."""
    found = []
    for rack in range(rng.randint(2, racks)):
        path = f"s{rack // 6}", f"b{rack // 3}", f"r{rack}"
        for at in range(rng.randint(1, rack_nodes)):
            rails = Rails(rng.choice([(0, 1), (1, 0)])) if railed else None
            amounts = {GPU: 8, CPU: 8_000, "pods": 110}
            used = {GPU: rng.choice([0, 0, 0, 4, 8])}
            found.append(node(f"n{rack}-{at}", *path, allocatable=amounts, used=used, rails=rails))
    rng.shuffle(found)
    return found


def _admitted(snapshot: Snapshot) -> Admit | None:
    return next(iter(decide(snapshot).admitted), None)


def test_roles_of_equal_requests_span_what_one_role_would() -> None:
    rng = Random(20261128)
    for _ in range(200):
        aligned = rng.random() < 0.3
        machines = _nodes(rng, racks=18, rack_nodes=6, railed=aligned)
        constraints = TopologyConstraints(rng.choice(_TIERS), rng.choice(_TIERS), aligned=aligned)
        one = replace(job().roles[0], constraints=constraints)
        roles = [replace(one, name=f"r{at}", replicas=rng.randint(1, 8)) for at in range(3)]
        roles = roles[: rng.randint(2, 3)]
        whole = replace(one, replicas=sum(role.replicas for role in roles))
        gang = cluster(*machines, jobs=(replace(job(), roles=tuple(roles)),), levels=LEVELS)
        expected = _admitted(replace(gang, jobs=(replace(job(), roles=(whole,)),)))
        admit = _admitted(gang)
        assert (admit and admit.spans) == (expected and expected.spans), table(gang)


def test_roles_span_as_few_racks_as_an_exhaustive_search() -> None:
    """Different roles may share nodes: at most one gang in twenty spans more racks."""
    rng, started, wider = Random(20261129), 0, []
    for _ in range(250):
        machines = _nodes(rng, racks=6, rack_nodes=3, railed=False)
        roles = tuple(
            Role(rng.randint(1, 3), rng.choice(_REQUESTS), name=f"r{at}")
            for at in range(rng.randint(2, 4))
        )
        admit = _admitted(cluster(*machines, jobs=(replace(job(), roles=roles),), levels=LEVELS))
        racks = next((len(each) for each in _rack_sets(machines) if _fit(roles, each)), None)
        assert (racks is None) == (admit is None)
        if admit is not None and racks is not None:
            started += 1
            assert admit.spans[-1] >= racks
            wider += [(machines, roles)] * (admit.spans[-1] > racks)
    assert started > 100
    assert len(wider) * 20 <= started, wider


def _rack_sets(machines: Sequence[Node]) -> Iterator[list[list[Node]]]:
    """The nodes of one rack, of each other, of each two, and so on."""
    racks: dict[str, list[Node]] = {}
    for each in machines:
        racks.setdefault(each.domains[-1], []).append(each)
    for count in range(1, len(racks) + 1):
        for chosen in combinations(racks.values(), count):
            yield [*chosen]


def _fit(roles: Sequence[Role], racks: Sequence[Sequence[Node]]) -> bool:
    free = [
        (each.allocatable[GPU] - each.used[GPU], each.allocatable[CPU])
        for rack in racks
        for each in rack
    ]
    # Roles with many pods have few choices.
    return _fit_beside(sorted(roles, key=lambda role: -role.replicas), sorted(free))


def _fit_beside(roles: Sequence[Role], free: Sequence[tuple[int, int]]) -> bool:
    """Whether some choice of nodes for each role fits on nodes with so much free GPU and CPU."""
    if not roles:
        return True
    gpu, cpu = (roles[0].per_pod.get(name, 0) for name in (GPU, CPU))
    able = [at for at, its in enumerate(free) if its[0] >= gpu and its[1] >= cpu]
    numbered = list(enumerate(free))
    left = {
        tuple(sorted((its[0] - gpu, its[1] - cpu) if at in chosen else its for at, its in numbered))
        for chosen in combinations(able, roles[0].replicas)
    }
    return any(_fit_beside(roles[1:], each) for each in sorted(left))
