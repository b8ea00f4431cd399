"""Number the ranks of a gang: those of each role in the world of its group.

The pods of a gang are numbered through in the order of its roles, and ranks within their group.
Roles of one group share ``RANK`` and ``WORLD_SIZE``, in the order of the roles; the first pod of a
group has its master.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright_scheduler.model.snapshot import Role


@dataclass(frozen=True, slots=True)
class RoleRanks:
    """The pods of a role, by their numbers in the gang, and its ranks in the world of its group.

    ``master`` is the first of the ``launchers`` pods of the group, of which ``pods_before`` are of
    earlier roles, and so are the ranks below ``first_rank``.
    """

    role: str
    group: str
    pods: range
    ranks_per_pod: int
    first_rank: int
    world_size: int
    pods_before: int
    launchers: int
    master: int

    def ranks_of(self, pod: int) -> range:
        """The ranks in this pod."""
        first = self.first_rank + (pod - self.pods.start) * self.ranks_per_pod
        return range(first, first + self.ranks_per_pod)


@dataclass(frozen=True, slots=True)
class RankLayout:
    """The ranks of all roles; ``training`` are those of the role that has the workload, or else of
    the first."""

    roles: tuple[RoleRanks, ...]
    training: RoleRanks

    def of(self, pod: int) -> RoleRanks:
        """The role of the pod with this number; the last one for a pod beyond the gang."""
        return next((role for role in self.roles if pod in role.pods), self.roles[-1])

    def has(self, pod: int, *, role: str, index: int) -> bool:
        """Whether the pod with this number is the one of this role and index."""
        its = self.of(pod)
        return pod in its.pods and (its.role, pod - its.pods.start) == (role, index)

    def pods_of(self, group: str, count: int) -> list[int]:
        """Of the first ``count`` pods those of a group, its master first."""
        return [
            pod
            for role in self.roles
            if role.group == group
            for pod in role.pods[: max(0, count - role.pods.start)]
        ]

    @property
    def masters(self) -> dict[str, int]:
        """The first pod of each group, in the order of the groups."""
        return {role.group: role.master for role in self.roles}

    def trains(self, pod: int) -> bool:
        """Whether the pod is of the group that trains."""
        return self.of(pod).group == self.training.group


def number_ranks(roles: Sequence[Role], *, training: str = "") -> RankLayout:
    """Number the ranks of these roles. ``training`` names the role that trains, by default the
    first."""
    numbered: list[RoleRanks] = []
    groups = [role.group or role.name for role in roles]
    first_pod = 0
    for role, group in zip(roles, groups, strict=True):
        earlier = [each for each in numbered if each.group == group]
        its = [each for each, of in zip(roles, groups, strict=True) if of == group]
        numbered.append(
            RoleRanks(
                role=role.name,
                group=group,
                pods=range(first_pod, first_pod + role.replicas),
                ranks_per_pod=role.ranks_per_pod,
                first_rank=sum(len(each.pods) * each.ranks_per_pod for each in earlier),
                world_size=sum(each.replicas * each.ranks_per_pod for each in its),
                pods_before=sum(len(each.pods) for each in earlier),
                launchers=sum(each.replicas for each in its),
                master=earlier[0].pods.start if earlier else first_pod,
            )
        )
        first_pod += role.replicas
    trains = next((each for each in numbered if each.role == training), numbered[0])
    return RankLayout(tuple(numbered), trains)


EMPTY = number_ranks([Role(0, {})])
"""That of an attempt without pods."""
