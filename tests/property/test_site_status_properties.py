"""The status of a Fabric or a Queue is replaced whole: whatever it held before, nothing is left."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import office, reporting
from fixtures.office import Office
from fixtures.reporting import Raw, Store
from railwright_api import names, routes
from railwright_api.fabric import FabricStatus
from railwright_api.queue import QueueStatus
from railwright_kube.client import Api
from railwright_operator.report.queues import QueueReporter
from railwright_watch import cluster_objects

WORDS = st.text("ab", min_size=1, max_size=3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
"""JSON as the API server stores it: without null."""
READ: dict[str, st.SearchStrategy[Any]] = {
    "agents": st.fixed_dictionaries({"nodes": st.just(0)}, optional={"b": VALUES}),
    "freshness": st.fixed_dictionaries({"checked": WORDS}, optional={"oldestReport": WORDS}),
    "nodes": st.integers(0, 9),
    "sources": st.lists(st.fixed_dictionaries({"source": WORDS}, optional={"b": VALUES})),
}
"""The fields that the controllers read back."""


def old(model: type[FabricStatus] | type[QueueStatus], **read: Any) -> st.SearchStrategy[Raw]:
    """Any status: fields of today's version, each with any value, and of others."""
    fields = {str(each.alias): VALUES for each in model.model_fields.values()} | read
    return st.builds(
        lambda ours, others: others | ours,
        st.fixed_dictionaries({}, optional=fields),
        st.dictionaries(WORDS, VALUES, max_size=3),
    )


async def fabric_status(before: Raw | None) -> Raw:
    """The status of a Fabric that has this one before it is reported."""
    there = Office()
    if before is not None:
        there.add(office.fabric("old", version=2, status=before))
    for name in ("n0", "n1"):
        there.node(name, old="r0")
    return await there.report()


@settings(deadline=None)
@given(old(FabricStatus, **READ))
def test_fabric_status_is_replaced_whole(before: Raw) -> None:
    assert asyncio.run(fabric_status(before)) == asyncio.run(fabric_status(None))


@settings(deadline=None)
@given(old(QueueStatus))
def test_queue_status_is_replaced_whole(before: Raw) -> None:
    store = Store()
    informers = reporting.informers_of(store)
    raw = reporting.raw_object("q", status=before)
    informers.queues.absorb(cluster_objects.answered(raw))
    path = routes.one(names.QUEUES, "q")
    store.put(path, raw)
    reporter = QueueReporter(
        cast("Api", store),
        site=informers.site,
        jobs=informers.jobs,
        absorb=informers.absorb_queue,
        clock=lambda: 0.0,
        rng=Random(0),
    )
    asyncio.run(reporter.report())
    assert store.objects[path]["status"] == {"waiting": 0, "running": 0}
