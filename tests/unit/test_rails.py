"""Which adapters are rails and which front-end: by closeness, speed, layer and number."""

from __future__ import annotations

import pytest

from railwright_topology import rails
from railwright_topology.parts import AdapterRole, Distance, Kind, Layer, Pair, Part, pair
from railwright_topology.rails import PlacedAdapter

IB, ETH = Layer.INFINIBAND, Layer.ETHERNET
FAST, SLOW = 50_000_000_000, 3_125_000_000


class Node:
    """Accelerators and adapters; the first adapters stand beside an accelerator each, by name."""

    def __init__(self, accelerators: int = 8) -> None:
        self.parts = [Part(f"gpu{n}", Kind.ACCELERATOR) for n in range(accelerators)]
        self.distances: dict[Pair, Distance] = {}

    def card(
        self,
        name: str,
        *beside: int,
        speed: int = FAST,
        layer: Layer = IB,
        farther: Distance | None = Distance.SYSTEM,
        **facts: object,
    ) -> None:
        count = sum(part.kind == Kind.ACCELERATOR for part in self.parts)
        self.parts.append(
            Part(name, Kind.ADAPTER, names=(name,), bytes_per_s=speed, layer=layer, **facts)  # type: ignore[arg-type]
        )
        for number in range(count):
            distance = Distance.SWITCH if number in beside else farther
            if distance is not None:
                self.distances[pair(name, f"gpu{number}")] = distance

    def rails(self, count: int = 8) -> Node:
        for number in range(count):
            self.card(f"mlx5_{number}", number)
        return self

    @property
    def placed(self) -> dict[str, PlacedAdapter]:
        return rails.of(self.parts, self.distances)

    @property
    def roles(self) -> dict[str, tuple[AdapterRole, int | None]]:
        return {name: (placed.role, placed.rail) for name, placed in self.placed.items()}


RAILS = {f"mlx5_{n}": (AdapterRole.RAIL, n) for n in range(8)}
FRONT_END, UNDECIDED = (AdapterRole.FRONT_END, None), (AdapterRole.UNDECIDED, None)


def test_eight_equal_adapters_beside_accelerators_are_rails() -> None:
    node = Node().rails()
    assert node.roles == RAILS
    assert node.placed["mlx5_3"] == PlacedAdapter(
        AdapterRole.RAIL,
        3,
        ("gpu3",),
        Distance.SWITCH,
        "8 of 8 accelerators have one beside them",
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "beside no accelerator"),
        ({"speed": SLOW}, "beside no accelerator, slower"),
        ({"layer": ETH}, "beside no accelerator, Ethernet and not InfiniBand"),
    ],
)
def test_two_beside_none_are_front_end(facts: dict[str, object], why: str) -> None:
    node = Node().rails()
    for name in ("mlx5_8", "mlx5_9"):
        node.card(name, **facts)  # type: ignore[arg-type]
    assert node.roles == RAILS | {"mlx5_8": FRONT_END, "mlx5_9": FRONT_END}
    assert node.placed["mlx5_8"].why == f"2 of its kind beside 8 rails: {why}"
    assert node.placed["mlx5_8"].near == ()


def test_slow_adapter_behind_accelerator_switch_is_front_end() -> None:
    node = Node().rails()
    node.card("eno1", 0, speed=SLOW, layer=ETH)
    assert node.roles == RAILS | {"eno1": FRONT_END}


def test_names_count_as_people_do() -> None:
    node = Node(12)
    for number in range(12):
        node.card(f"mlx5_{number}", number)
    assert node.roles["mlx5_10"] == (AdapterRole.RAIL, 10)


def test_one_adapter_per_two_and_four_per_one_are_rails() -> None:
    shared = Node()
    for number in range(4):
        shared.card(f"mlx5_{number}", 2 * number, 2 * number + 1)
    assert shared.roles == {f"mlx5_{n}": (AdapterRole.RAIL, n) for n in range(4)}
    many = Node(4)
    for number in range(16):
        many.card(f"rdmap{number}", number // 4, layer=Layer.OTHER)
    assert {role for role, _ in many.roles.values()} == {AdapterRole.RAIL}


def test_adapter_with_cable_down_is_still_a_rail() -> None:
    node = Node().rails(7)
    node.card("mlx5_7", 7, speed=0, up=False)
    assert node.roles == RAILS


def test_one_that_is_gone_leaves_the_others_rails() -> None:
    assert Node().rails(7).roles == {name: RAILS[name] for name in list(RAILS)[:7]}


def test_extra_adapter_leaves_rails_undecided() -> None:
    node = Node().rails()
    node.card("mlx5_8", 0)
    assert {*node.roles.values()} == {UNDECIDED}
    assert node.placed["mlx5_5"].why == (
        "2 of its kind stand beside one accelerator, 1 beside most"
    )


def test_two_equally_fast_kinds_are_undecided() -> None:
    node = Node().rails()
    for number in range(8):
        node.card(f"bf3_{number}", number, layer=ETH)
    assert {*node.roles.values()} == {UNDECIDED}


def test_slower_kind_in_equal_number_is_undecided() -> None:
    node = Node().rails()
    for number in range(8):
        node.card(f"ens{number}", number, speed=SLOW)
    assert node.roles == RAILS | {f"ens{n}": UNDECIDED for n in range(8)}


def test_without_a_tree_fastest_matching_kind_is_rails() -> None:
    node = Node()
    for number in range(8):
        node.card(f"mlx5_{number}", farther=None)
    node.card("eth0", farther=None, speed=SLOW, layer=ETH)
    assert node.roles == RAILS | {"eth0": FRONT_END}
    assert node.placed["mlx5_0"].near == ()
    assert node.placed["mlx5_0"].why == (
        "8 equal ones for 8 accelerators, and faster than all others"
    )


def test_distances_of_some_accelerators_decide_nothing() -> None:
    node = Node(2).rails(2)
    node.card("eth0", farther=None, speed=SLOW, layer=ETH)
    node.distances[pair("eth0", "gpu0")] = Distance.NUMA
    far = node.placed["eth0"]
    assert (far.near, far.distance) == ((), None)
    node.distances[pair("eth0", "gpu0")] = Distance.SWITCH
    beside = node.placed["eth0"]
    assert (beside.near, beside.distance) == (("gpu0",), Distance.SWITCH)


def test_behind_root_ports_fastest_even_kind_is_rails() -> None:
    node = Node(4)
    node.card("mlx5_0", farther=Distance.NUMA)
    node.card("mlx5_1", farther=Distance.NUMA)
    node.card("eth0", farther=Distance.NUMA, speed=SLOW, layer=ETH)
    assert node.roles == {
        "mlx5_0": (AdapterRole.RAIL, 0),
        "mlx5_1": (AdapterRole.RAIL, 1),
        "eth0": FRONT_END,
    }


def test_only_kind_without_near_accelerator_is_undecided() -> None:
    node = Node(4)
    for name in ("eth0", "eth1"):
        node.card(name, farther=Distance.NUMA)
    assert node.roles == {"eth0": UNDECIDED, "eth1": UNDECIDED}


def test_three_for_eight_are_undecided() -> None:
    node = Node()
    for number in range(3):
        node.card(f"mlx5_{number}", farther=None)
    node.card("eth0", farther=None, speed=SLOW)
    assert {*node.roles.values()} == {UNDECIDED}


def test_a_node_without_accelerators_has_no_rails() -> None:
    node = Node(0)
    for name in ("eth0", "eth1"):
        node.card(name)
    node.card("eno1", speed=SLOW)
    assert {*node.roles.values()} == {UNDECIDED}


def test_what_is_said_counts() -> None:
    node = Node(2)
    node.card("roce0", 0, role=AdapterRole.RAIL, rail=1)
    node.card("roce1", 1, role=AdapterRole.RAIL, rail=0)
    node.card("eth0", speed=SLOW, layer=ETH)
    assert node.roles == {
        "roce0": (AdapterRole.RAIL, 1),
        "roce1": (AdapterRole.RAIL, 0),
        "eth0": FRONT_END,
    }
