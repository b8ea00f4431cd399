"""Where gangs go, in trees small enough to see."""

from __future__ import annotations

import pytest

from fixtures import GPU, cluster, job, node, world
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.snapshot import Node, Snapshot
from railwright_scheduler.policy.decide import decide


@pytest.mark.parametrize(
    ("racks", "count", "shares"),
    [
        ((4, 3, 2), 2, (0, 0, 2)),
        ((4, 3, 2), 3, (0, 3, 0)),
        ((3, 3, 2, 1), 7, (3, 3, 0, 1)),
        ((8, 7, 4), 11, (0, 7, 4)),
        ((6, 5, 4, 3, 2), 12, (0, 5, 4, 3, 0)),
        ((6, 5, 4, 3, 2), 16, (6, 5, 4, 0, 1)),
        ((4, 4, 4), 6, (2, 4, 0)),
    ],
)
def test_a_gang_fills_the_fewest_racks_and_leaves_big_ones_whole(
    racks: tuple[int, ...], count: int, shares: tuple[int, ...]
) -> None:
    nodes = [node(f"n{r}-{i}", f"r{r}") for r, size in enumerate(racks) for i in range(size)]
    admit = _place(cluster(*nodes, jobs=(job(replicas=count),), levels=("rack",)))
    used = [sum(name.startswith(f"n{rack}-") for name in admit.nodes) for rack in range(len(racks))]
    assert tuple(used) == shares


def test_fewer_racks_are_worth_more_blocks() -> None:
    admit = _place(
        world("""
        node  block  rack  gpu
        n0    b0     r0    8
        n1    b0     r1    8
        n2    b0     r2    8
        n3    b0     r3    8
        n4    b1     r0    8
        n5    b1     r0    8
        n6    b2     r0    8
        n7    b2     r0    8
        job   nodes  gpu
        a     4      8
    """)
    )
    assert (admit.nodes, admit.spans) == (("n4", "n5", "n6", "n7"), (2, 2))


def test_of_equal_racks_those_of_one_block_are_taken() -> None:
    admit = _place(
        world("""
        node  block  rack  gpu
        n0    b0     r0    8
        n1    b0     r0    8
        n2    b1     r0    8
        n3    b1     r0    8
        n4    b1     r1    8
        n5    b1     r1    8
        job   nodes  gpu
        a     4      8
    """)
    )
    assert (admit.nodes, admit.spans) == (("n2", "n3", "n4", "n5"), (1, 2))


def test_two_blocks_in_two_spines_beat_three_blocks_in_one() -> None:
    """The smallest spine that holds the gang in four racks is not the best one."""
    blocks = {"s0": (1, 1, 2), "s1": (3,), "s2": (1,)}
    nodes = [
        node(f"{spine}-{b}-{r}-{i}", spine, f"b{b}", f"r{r}")
        for spine, racks in blocks.items()
        for b, count in enumerate(racks)
        for r in range(count)
        for i in range(4)
    ]
    admit = _place(cluster(*nodes, jobs=(job(replicas=16),), levels=("spine", "block", "rack")))
    assert admit.spans == (2, 2, 4)


def test_racks_of_one_name_in_two_blocks_are_two() -> None:
    admit = _place(
        world("""
        node  block  rack  gpu
        n0    b0     r0    8
        n1    b1     r0    8
        job   nodes  gpu
        a     2      8
    """)
    )
    assert admit.spans == (2, 2)


def test_nodes_without_a_label_are_never_taken_for_neighbours() -> None:
    admit = _place(
        world("""
        node  block  rack  gpu
        n0    -      r0    8
        n1    -      r0    8
        n2    b0     -     8
        n3    b0     -     8
        job   nodes  gpu
        a     2      8
    """)
    )
    assert (admit.nodes, admit.spans) == (("n2", "n3"), (1, 2))


def test_a_host_name_as_the_last_level_changes_nothing_above_it() -> None:
    admit = _place(
        world("""
        node  rack  host  gpu
        n0    r0    n0    8
        n1    r1    n1    8
        n2    r1    n2    8
        job   nodes  gpu
        a     2      8
    """)
    )
    assert (admit.nodes, admit.spans) == (("n1", "n2"), (1, 2))


def test_small_job_fills_partly_used_node_first() -> None:
    """A free node stays free for larger jobs."""
    admit = _place(
        world("""
        node  rack  gpu
        n0    r0    8
        n1    r1    8
        n2    r1    3/8
        n3    r1    8
        job   nodes  gpu
        a     1      2
    """)
    )
    assert admit.nodes == ("n2",)


def test_earlier_job_counts_for_best_fit_of_the_next() -> None:
    """The capacity of the first job is taken into account for the second."""
    decisions = decide(
        world("""
        node  gpu  labels
        n0    3/8  -
        n1    4/8  kind=b
        job   nodes  gpu  selector
        a     1      2    kind=b
        b     1      1    -
    """)
    )
    assert [admit.nodes for admit in decisions.admitted] == [("n1",), ("n1",)]


def test_of_equal_racks_the_one_with_less_capacity_is_taken() -> None:
    admit = _place(
        world("""
        node  rack  gpu
        n0    r0    8
        n1    r0    8
        n2    r1    8
        n3    r1    2/8
        job   nodes  gpu
        a     2      1
    """)
    )
    assert admit.nodes == ("n2", "n3")


def test_gang_over_blocks_takes_rest_from_smallest_that_fits() -> None:
    """The remaining pods go to the smallest block that holds them."""
    sizes = {"b0": 3, "b1": 2, "b2": 1}
    nodes = [
        node(f"{block}-{r}-{i}", block, f"r{r}")
        for block, racks in sizes.items()
        for r in range(racks)
        for i in range(4)
    ]
    admit = _place(cluster(*nodes, jobs=(job(replicas=16),), levels=("block", "rack")))
    assert {name.split("-")[0] for name in admit.nodes} == {"b0", "b2"}


def test_a_job_without_devices_stays_off_nodes_with_devices() -> None:
    admit = _place(
        world("""
        node  rack  gpu  cpu
        n0    r0    8    64
        n1    r0    -    64
        job   nodes  cpu
        a     1      4
    """)
    )
    assert admit.nodes == ("n1",)


def test_small_jobs_leave_empty_racks_empty() -> None:
    nodes = [node(f"n{i:02d}", f"r{i // 4}") for i in range(12)]
    jobs = tuple(job(f"j{i:02d}", per_pod={GPU: 1}) for i in range(40))
    decisions = decide(cluster(*nodes, jobs=jobs, levels=("rack",)))
    used = {name for admit in decisions.admitted for name in admit.nodes}
    assert used == {"n00", "n01", "n02", "n03", "n04"}


def test_ranks_run_through_each_rack_and_block_before_the_next() -> None:
    names = ["n5", "n0", "n4", "n1", "n3", "n2"]
    nodes = [node(name, f"b{i % 2}", f"r{i % 3}") for i, name in enumerate(names)]
    admit = _place(cluster(*nodes, jobs=(job(replicas=6),), levels=("block", "rack")))
    path = {each.name: each.domains for each in nodes}
    assert [path[name] for name in admit.nodes] == sorted(path.values())


def test_twenty_levels_are_as_exact_as_two() -> None:
    """Costs no longer fit 64 bits here: each level may use up to eight domains."""
    nodes = [
        Node(f"n{rack}-{i}", tuple(f"d{rack}" for _ in range(20)), {GPU: 8}, {})
        for rack in range(8)
        for i in range(3)
    ]
    levels = tuple(f"level-{i}" for i in range(20))
    admit = _place(cluster(*nodes, jobs=(job(replicas=20, per_pod={GPU: 8}),), levels=levels))
    assert admit.spans == (7,) * 20


def _place(snapshot: Snapshot) -> Admit:
    (admit,) = decide(snapshot).admitted
    return admit
