"""The ranks of drawn gangs: each group's are numbered through, without a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.snapshot import Role

_ROLES = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 8), st.sampled_from(["", "x", "y"])),
    min_size=1,
    max_size=8,
).map(
    lambda drawn: [
        Role(replicas, {}, f"r{at}", group, ranks_per_pod=ranks)
        for at, (replicas, ranks, group) in enumerate(drawn)
    ]
)


@given(_ROLES)
def test_ranks_of_a_group_are_numbered_through(roles: list[Role]) -> None:
    layout = number_ranks(roles)
    pods = range(sum(role.replicas for role in roles))
    groups: dict[str, list[int]] = {}
    for pod in pods:
        role = layout.of(pod)
        if role.group not in groups:
            assert role.master == pod
        groups.setdefault(role.group, []).extend(role.ranks_of(pod))
        launcher = role.pods_before + pod - role.pods.start
        assert 0 <= launcher < role.launchers
    for group, ranks in groups.items():
        assert ranks == [*range(len(ranks))]
        sizes = {each.world_size for each in layout.roles if each.group == group}
        assert sizes == {len(ranks)}


@given(_ROLES)
def test_first_role_trains_unless_another_is_named(roles: list[Role]) -> None:
    assert number_ranks(roles).training.role == roles[0].name
    named = number_ranks(roles, training=roles[-1].name)
    assert named.training.role == roles[-1].name
    trains = [named.of(pod).group == named.training.group for pod in range(roles[0].replicas)]
    assert [named.trains(pod) for pod in range(roles[0].replicas)] == trains
