"""What is found of single nodes is in their NodeHealth, and decisions read it there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from fixtures import observing, reporting
from fixtures.reporting import Raw, Store
from railwright_api import names, routes
from railwright_api.node_health import NodeHealth
from railwright_kube.client import Api
from railwright_kube.errors import ConflictError
from railwright_operator.discovery import AGENTS, Discovery, FabricState
from railwright_operator.report import node_healths as reports
from railwright_operator.report.node_healths import NodeHealthReporter
from railwright_operator.watch import node_healths
from railwright_operator.watch.records import NodeRecord
from railwright_operator.watch.site import Site
from railwright_topology.fabric import Fabric
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.relative_speed import EVEN, RelativeSpeed
from railwright_topology.slow_devices import Slow
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

RAILS = Rails((0, 1), (MiscabledRail(1, "mlx5_1", "it has no cable"),))
SPEED = RelativeSpeed(products=0.61, rails=RAILS.share)
SLOW = (Slow("n1", "0000:3b:00.0", "H100", "flop_per_s", 400 * 10**12, 660 * 10**12),)
SOURCES = {"n1": (AGENTS, "site/ibnetdiscover")}
FOUND: dict[str, Any] = {
    "places": {"n0": (), "n1": ()},
    "rails": {"n1": RAILS},
    "relative_speeds": {"n1": SPEED},
    "slow": SLOW,
    "fact_sources": SOURCES,
}
CONTENT = {
    "rails": {
        "order": [0, 1],
        "miscabled": [{"rail": 1, "adapter": "mlx5_1", "reason": "it has no cable"}],
    },
    "relativeSpeed": {"products": "0.61", "memory": "1.0"},
    "slow": [
        "0000:3b:00.0 multiplies at 61 % of what most H100 do: 400 TFLOP/s of 660 TFLOP/s",
    ],
    "sources": ["agents", "site/ibnetdiscover"],
}


class Leader:
    """A leader with two nodes, to which one agent has reported, and what it publishes of them."""

    def __init__(self, store: Store, *, expected: int = 0) -> None:
        self.store, self.now_s = store, 0.0
        self.informers = reporting.informers_of(store)
        self.nodes: dict[str, NodeRecord] = {}
        site = Site()
        status = {"agents": {"nodes": expected, "silent": 0}}
        raw = reporting.raw_object("default", status=status)
        reporting.set_object(site, names.FABRICS, raw)
        self.discovery = Discovery(site, clock=lambda: self.now_s)
        for name in ("n0", "n1"):
            self.nodes[name] = node = observing.node_record(name)
            self.discovery.node_changed(None, node)
        for raw in store.objects.values():
            self.informers.health_objects.absorb(node_healths.answered(raw))
        self.reporter = NodeHealthReporter(
            cast("Api", store),
            healths=self.informers.health_objects,
            discovery=self.discovery,
            nodes=self.nodes,
        )

    async def report(self, **found: Any) -> None:
        await self.discovery.refresh()
        self.discovery.found = FabricState(Fabric(**(FOUND | found)))
        await self.reporter.report()

    async def receive(self, node: str) -> None:
        await self.discovery.receive_report(node, hardware_documents.written(Document()))

    def content(self, node: str = "n1") -> Raw:
        raw = self.store.objects[routes.one(names.NODE_HEALTHS, node)]
        NodeHealth.model_validate(raw)
        content: Raw = raw["spec"]
        return content


@pytest.fixture
def store() -> Store:
    return Store()


async def test_health_is_written_once_and_read_back(store: Store) -> None:
    """A node of which nothing is known has none."""
    leader = Leader(store)
    await leader.report()
    assert leader.content() == CONTENT
    raw = store.objects[routes.one(names.NODE_HEALTHS, "n1")]
    (owner,) = raw["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
    (record,) = leader.informers.healths.by_node.values()
    assert (record.node_uid, record.rails, record.relative_speed) == ("uid-n1", RAILS, SPEED)
    await leader.receive("n1")
    await leader.report()
    assert len(store.requests) == 1


async def test_change_is_written_and_removes_what_no_longer_holds(store: Store) -> None:
    leader = Leader(store)
    await leader.report()
    await leader.receive("n1")
    await leader.report(rails={"n1": Rails((0, 1))}, relative_speeds={}, slow=())
    assert leader.content() == {
        "rails": {"order": [0, 1], "miscabled": []},
        "sources": CONTENT["sources"],
    }
    record = leader.informers.healths.by_node["n1"]
    assert (record.rails, record.relative_speed) == (Rails((0, 1)), EVEN)
    await leader.report(rails={}, relative_speeds={}, slow=(), fact_sources={})
    assert not leader.content()
    assert [verb for verb, _ in store.requests] == ["create", "patch", "patch"]


async def test_new_leader_keeps_health_until_agents_reported(store: Store) -> None:
    """What agents reported to the last leader is lost, and slow is what others are not."""
    await Leader(store).report()
    leader = Leader(store, expected=2)
    nothing: dict[str, Any] = {"rails": {}, "relative_speeds": {}}
    await leader.report(**nothing, slow=())
    await leader.receive("n0")
    await leader.report(**nothing, slow=())
    assert leader.content() == CONTENT
    leader.now_s += 1_000.0
    await leader.report(**nothing, slow=())
    assert leader.content() == CONTENT  # The agent of n1 is silent.
    await leader.receive("n1")
    await leader.report(**nothing, slow=(), fact_sources={"n1": (AGENTS,)})
    assert not leader.content()


async def test_health_without_agents_follows_its_files(store: Store) -> None:
    sources = {"n1": ("site/ibnetdiscover",)}
    await Leader(store).report(fact_sources=sources)
    leader = Leader(store)
    await leader.report(rails={}, relative_speeds={}, slow=())
    assert not leader.content()


async def test_health_of_a_replaced_node_is_left_to_its_deletion(store: Store) -> None:
    leader = Leader(store)
    await leader.report()
    leader.nodes["n1"] = replace(leader.nodes["n1"], uid="another")
    await leader.report(slow=())
    assert leader.content() == CONTENT


async def test_refused_write_is_tried_again(store: Store) -> None:
    leader = Leader(store)
    path = routes.kind(names.NODE_HEALTHS)
    store.refusals["create", path] = ConflictError(409, "Conflict", message="later")
    await leader.report()
    assert not store.objects
    del store.refusals["create", path]
    await leader.report()
    assert leader.content() == CONTENT


async def test_many_nodes_are_written_some_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "WRITES_MAX", 1)
    monkeypatch.setattr(reports, "AT_ONCE", 1)
    leader = Leader(store)
    both = {"n0": RAILS, "n1": RAILS}
    await leader.report(rails=both)
    assert len(store.objects) == 1
    await leader.report(rails=both)
    assert len(store.objects) == 2


@pytest.mark.parametrize(
    "broken",
    [{"rails": "x"}, {"relativeSpeed": {"products": "fast"}}, {"rails": {"order": [-1]}}],
)
def test_unreadable_health_is_that_of_a_usual_node(broken: Raw) -> None:
    record = node_healths.answered(reporting.raw_object("n1", spec=broken))
    assert (record.rails, record.relative_speed) == (None, EVEN)


def test_only_rails_and_speed_wake_a_cycle() -> None:
    def health(**content: Any) -> node_healths.HealthRecord:
        return node_healths.answered(reporting.raw_object("n1", spec=CONTENT | content))

    assert not node_healths.is_decisive(health(), health(slow=["another"]))
    assert node_healths.is_decisive(health(), health(relativeSpeed=None))
    assert node_healths.is_decisive(None, health())
    assert not node_healths.is_decisive(
        None, node_healths.answered(reporting.raw_object("n1", spec={"hardware": "8 GPUs"}))
    )
