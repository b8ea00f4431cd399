"""What commands compute themselves, against the parts of the product that decide it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import jobs as scheduler_jobs
from railwright_cli.api_objects import (
    JobSpecView,
    JobView,
    MetadataView,
    PriorityClassView,
    RoleView,
)
from railwright_cli.errors import UsageError
from railwright_cli.jobs import ordered
from railwright_cli.pods import place_of_rank
from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.snapshot import Role as CoreRole
from railwright_scheduler.policy import scheduling_queue

START = datetime(2026, 1, 1, tzinfo=UTC)
CLASSES = [
    PriorityClassView(MetadataView(name="low"), -5),
    PriorityClassView(MetadataView(name="usual"), 10, global_default=True),
    PriorityClassView(MetadataView(name="high"), 1000),
]
VALUES = {"low": -5, None: 10, "usual": 10, "high": 1000}

_WAITING = st.tuples(
    st.sampled_from(sorted(VALUES, key=str)), st.integers(0, 5), st.sampled_from(["a", "b"])
)
_ROLES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from([None, "x", "y"])),
    min_size=1,
    max_size=8,
)


@given(st.lists(_WAITING, max_size=12))
def test_positions_are_the_order_of_the_scheduler(drawn: list[tuple[str | None, int, str]]) -> None:
    shown, queued = [], []
    for number, (name, age_s, namespace) in enumerate(drawn):
        uid = f"{number:02d}"
        made = START + timedelta(seconds=age_s)
        shown.append(
            JobView(MetadataView(uid, namespace, uid, made), JobSpecView(priority_class_name=name))
        )
        queued.append(scheduler_jobs.job(uid, uid=uid, priority=VALUES[name], submitted_s=age_s))
    found = ordered(reversed(shown), CLASSES)
    assert [each.job.metadata.uid for each in found] == [
        job.uid for job in scheduling_queue.by_priority(queued)
    ]
    assert [each.position for each in found] == [*range(1, len(found) + 1)]


@given(_ROLES, st.data())
def test_rank_is_in_the_pod_that_runs_it(
    drawn: list[tuple[int, int, str | None]], data: st.DataObject
) -> None:
    roles = tuple(
        RoleView(f"r{at}", group, replicas, ranks)
        for at, (replicas, ranks, group) in enumerate(drawn)
    )
    layout = number_ranks(
        [
            CoreRole(each.replicas, {}, each.name, each.group or "", ranks_per_pod=ranks)
            for each, (_, ranks, _) in zip(roles, drawn, strict=True)
        ]
    )
    pod = data.draw(st.integers(0, sum(each.replicas for each in roles) - 1))
    its = layout.of(pod)
    rank = data.draw(st.sampled_from(its.ranks_of(pod)))
    role, index = place_of_rank(roles, its.role, rank)
    assert (role.name, index) == (its.role, pod - its.pods.start)
    assert place_of_rank(roles, its.role, None) == (role, 0)
    with pytest.raises(UsageError, match=f"its ranks are 0 to {its.world_size - 1}$"):
        place_of_rank(roles, its.role, its.world_size)
