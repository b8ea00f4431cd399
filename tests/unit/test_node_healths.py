"""What is found of single nodes is in their NodeHealth, and decisions read it there."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from fixtures import observing, office, reporting
from fixtures.reporting import Raw, Store
from railwright_api import names, routes
from railwright_api.node_health import NodeHealth
from railwright_controllers.discovery import AGENTS, CAUGHT_UP_S, Discovery
from railwright_controllers.report.node_healths import AT_ONCE, INTERVAL_S, NodeHealthReporter
from railwright_kube.client import Api
from railwright_kube.errors import ConflictError, ForbiddenError, Unreachable
from railwright_topology.fabric import Fabric
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.parts import DeviceBenchmark
from railwright_topology.relative_speed import EVEN, RelativeSpeed
from railwright_topology.slow_devices import Slow
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError
from railwright_watch import node_healths
from railwright_watch.node_healths import HealthRecord
from railwright_watch.nodes import NodeRecord

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
    "benchmarks": {"n1": (DeviceBenchmark("0000:3b:00.0", "H100", "torch", 400 * 10**12),)},
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

    def __init__(self, store: Store) -> None:
        self.store, self.now_s = store, 0.0
        self.healths = office.informers_of(store).healths
        self.nodes: dict[str, NodeRecord] = {}
        cache = office.fabric_cache(reporting.raw_object("default"))
        self.discovery = Discovery(
            cache, healths=lambda: self.healths.records.values(), clock=lambda: self.now_s
        )
        for name in ("n0", "n1"):
            self.nodes[name] = node = observing.node_record(name)
            self.discovery.node_changed(None, node)
        for raw in store.objects.values():
            self.healths.absorb(node_healths.answered(raw))
        self.reporter = NodeHealthReporter(
            cast("Api", store),
            healths=self.healths,
            discovery=self.discovery,
            nodes=self.nodes,
            clock=lambda: self.now_s,
            rng=Random(0),
        )

    async def report(self, **found: Any) -> None:
        """Assemble what is due, and report that these facts were found in it."""
        await self.discovery.refresh()
        state = self.discovery.found
        self.discovery.found = replace(state, fabric=Fabric(**(FOUND | found)))
        await self.reporter.report()

    async def receive(self, node: str, *, is_assembled: bool = True) -> None:
        """Receive a report of a node's agent."""
        await self.discovery.receive_report(node, hardware_documents.written(Document()))
        if is_assembled:
            self.discovery._again()

    def health(self, node: str = "n1") -> HealthRecord:
        """The health of a node as decisions use it."""
        stored = node_healths.answered(self.store.objects[routes.one(names.NODE_HEALTHS, node)])
        (cached,) = (each for each in self.healths.records.values() if each.name == node)
        assert (cached, cached.rv) == (stored, stored.rv)
        return stored

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
    assert len(leader.healths.records) == 1
    record = leader.health()
    assert (record.node_uid, record.rails, record.relative_speed) == ("uid-n1", RAILS, SPEED)
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
    record = leader.health()
    assert (record.rails, record.relative_speed) == (Rails((0, 1)), EVEN)
    await leader.report(**NOTHING, fact_sources={})
    assert not leader.content()
    assert [verb for verb, _ in store.requests] == ["create", "patch", "patch"]


class LaterStore(Store):
    """Its schema has a field of a later version at every depth, with a default."""

    def put(self, path: str, raw: Raw) -> Raw:
        raw = copy.deepcopy(raw)
        spec = raw["spec"]
        rails = spec.get("rails", {})
        for part in (spec, rails, *rails.get("miscabled", ()), spec.get("relativeSpeed", {})):
            part.setdefault("sinceLater", 7)
        return super().put(path, raw)

    async def patch(self, path: str, body: Raw) -> Raw:
        await super().patch(path, body)
        return self.put(path, self.objects[path])


UNMEASURED: dict[str, Any] = {"benchmarks": {}, "relative_speeds": {}, "slow": ()}


@pytest.mark.parametrize("found", [{}, UNMEASURED], ids=["measured", "of a restarted agent"])
async def test_fields_of_a_later_version_are_no_change(found: dict[str, Any]) -> None:
    """Else every report would write every object again; and a change leaves them."""
    store = LaterStore()
    leader = Leader(store)
    await leader.receive("n1")
    await leader.report()
    if found:
        leader = Leader(store)
        await leader.receive("n1")
    for _ in range(3):
        await leader.report(**found)
    assert (store.count("create"), store.count("patch")) == (1, 0)
    store.objects[routes.one(names.NODE_HEALTHS, "n1")]["spec"]["rails"]["sinceLater"] = 9
    await leader.report(**found, rails={"n1": Rails((0, 1))})
    assert leader.content()["sinceLater"] == 7
    assert leader.content()["rails"] == {"order": [0, 1], "miscabled": [], "sinceLater": 9}


NOTHING: dict[str, Any] = UNMEASURED | {"rails": {}}


async def test_new_leader_keeps_health_until_agents_reported(store: Store) -> None:
    """What agents reported to the last leader is lost, and slow is what others are not."""
    await Leader(store).report()
    leader = Leader(store)
    await leader.report(**NOTHING)
    await leader.receive("n0")
    await leader.report(**NOTHING)
    assert leader.content() == CONTENT
    leader.now_s += CAUGHT_UP_S + 1
    await leader.report(**NOTHING)
    assert leader.content() == CONTENT  # The agent of n1 is silent.
    await leader.receive("n1")
    await leader.report(**NOTHING, fact_sources={"n1": (AGENTS,)})
    assert leader.content().keys() == {"relativeSpeed", "slow"}


async def test_report_counts_once_it_is_in_the_fabric(store: Store) -> None:
    """Reports are gathered before they are assembled, and some are refused."""
    await Leader(store).report()
    leader = Leader(store)
    await leader.report(**NOTHING)
    for node in ("n0", "n1"):
        await leader.receive(node, is_assembled=False)
    await leader.report(**NOTHING)
    assert leader.content() == CONTENT
    leader = Leader(store)
    with pytest.raises(WiringError):
        await leader.discovery.receive_report("n1", "{}")
    await leader.report(**NOTHING)
    leader.now_s += CAUGHT_UP_S + 1
    await leader.report(**NOTHING)
    await leader.receive("n1", is_assembled=False)
    await leader.report(**NOTHING)
    assert leader.content() == CONTENT


async def test_restarted_agent_leaves_the_speed_of_a_busy_node(store: Store) -> None:
    """It measures no device before the training on it ends."""
    await Leader(store).report()
    leader = Leader(store)
    await leader.receive("n1")
    await leader.report(**NOTHING, fact_sources={"n1": (AGENTS,)})
    assert leader.content() == {key: CONTENT[key] for key in ("relativeSpeed", "slow")}
    usual = (DeviceBenchmark("0000:3b:00.0", "H100", "torch", 660 * 10**12),)
    facts = NOTHING | {"fact_sources": {"n1": (AGENTS,)}, "benchmarks": {"n1": usual}}
    await leader.report(**facts)
    assert leader.content() == {"sources": [AGENTS]}


async def test_nothing_is_written_before_the_first_assembly(store: Store) -> None:
    await Leader(store).report(fact_sources={})
    leader = Leader(store)
    leader.discovery._began_s = 0.0
    leader.now_s += CAUGHT_UP_S + 1
    assert leader.discovery.is_caught_up
    await leader.reporter.report()
    assert "rails" in leader.content()


async def test_health_without_agents_follows_its_files(store: Store) -> None:
    sources = {"n1": ("site/ibnetdiscover",)}
    await Leader(store).report(fact_sources=sources)
    leader = Leader(store)
    await leader.report(**NOTHING)
    assert not leader.content()


async def test_health_of_a_replaced_node_is_left_to_its_deletion(store: Store) -> None:
    """The next node of the name has none until then, nor one out of facts of the earlier node."""
    leader = Leader(store)
    await leader.report()
    old, new = leader.nodes["n1"], replace(leader.nodes["n1"], uid="another")
    leader.nodes["n1"] = new
    await leader.report(slow=())
    assert leader.content() == CONTENT
    path = routes.one(names.NODE_HEALTHS, "n1")
    del store.objects[path]
    leader.healths._records.clear()
    await leader.report()
    assert path not in store.objects
    leader.discovery.node_changed(old, new)
    leader.discovery._again()
    await leader.report()
    assert store.objects[path]["metadata"]["ownerReferences"][0]["uid"] == "another"


async def test_health_that_lost_its_owner_gets_it_back(store: Store) -> None:
    """A node was deleted without its dependents, and registered again."""
    await Leader(store).report(fact_sources={})
    metadata = store.objects[routes.one(names.NODE_HEALTHS, "n1")]["metadata"]
    del metadata["ownerReferences"]
    leader = Leader(store)
    await leader.report(fact_sources={})
    assert leader.health().node_uid == "uid-n1"


def test_late_deletion_removes_no_newer_health() -> None:
    healths = node_healths.NodeHealths()
    old, new = (
        node_healths.answered(reporting.raw_object("n1", metadata={"uid": uid}))
        for uid in ("old", "new")
    )
    healths.change(None, old)
    healths.change(None, new)
    healths.change(old, None)
    assert healths.by_node == {"n1": new}
    healths.change(new, None)
    assert not healths.by_node


async def test_refused_write_is_tried_again_after_a_pause(store: Store) -> None:
    leader = Leader(store)
    path = routes.kind(names.NODE_HEALTHS)
    store.refusals["create", path] = ConflictError(409, "Conflict", message="later")
    await leader.report()
    assert not store.objects
    del store.refusals["create", path]
    await leader.report()
    assert not store.objects
    leader.now_s += INTERVAL_S.base_s
    await leader.report()
    assert leader.content() == CONTENT


async def test_node_refused_again_and_again_is_written_seldom(store: Store) -> None:
    """A policy of the site may refuse one for ever; another one is written at once."""
    leader, both = Leader(store), {"n0": RAILS, "n1": RAILS}
    await leader.report(fact_sources={})
    store.refusals["patch", routes.one(names.NODE_HEALTHS, "n1")] = ForbiddenError(
        403, "Forbidden", message="a policy"
    )
    for _ in range(100):
        await leader.report(rails=both, slow=(), fact_sources={})
        leader.now_s += INTERVAL_S.base_s
    assert leader.content("n0")
    assert 5 <= store.count("patch") <= 9


async def test_nodes_that_are_refused_delay_no_other(store: Store) -> None:
    """More of them than are written at a time."""
    leader = Leader(store)
    del leader.nodes["n1"]
    refused = [f"r{at}" for at in range(2 * AT_ONCE)]
    for name in (*refused, "good"):
        leader.nodes[name] = node = observing.node_record(name)
        leader.discovery.node_changed(None, node)
    found: dict[str, Any] = {
        "places": dict.fromkeys(leader.nodes, ()),
        "rails": dict.fromkeys((*refused, "good"), RAILS),
    }
    refusal = ForbiddenError(403, "Forbidden", message="a policy")
    path = routes.kind(names.NODE_HEALTHS)
    store.refusals["create", path] = refusal
    created = itertools.count(1)

    def admit_the_last() -> None:
        if next(created) > len(refused):
            store.refusals.clear()

    store.meanwhile["create", path] = admit_the_last
    await leader.report(**NOTHING | found, fact_sources={})
    assert leader.content("good")
    assert len(store.objects) == 1


async def test_report_ends_while_the_api_server_is_away(store: Store) -> None:
    leader = Leader(store)
    found = {"places": {f"n{at}": () for at in range(9)}}
    found |= {"rails": dict.fromkeys(found["places"], RAILS)}  # type: ignore[arg-type]
    for name in found["places"]:
        leader.nodes[name] = node = observing.node_record(name)
        leader.discovery.node_changed(None, node)
    store.refusals["create", routes.kind(names.NODE_HEALTHS)] = Unreachable("x")
    await leader.report(**NOTHING | found, fact_sources={})
    assert store.count("create") == AT_ONCE


async def test_node_that_joins_during_a_report_ends_nothing(store: Store) -> None:
    leader, both = Leader(store), {"n0": RAILS, "n1": RAILS}

    def join() -> None:
        leader.nodes[f"later-{len(leader.nodes)}"] = observing.node_record("later")

    store.meanwhile["create", routes.kind(names.NODE_HEALTHS)] = join
    await leader.report(rails=both)
    assert len(store.objects) == 2


@pytest.mark.parametrize(
    "broken",
    [
        {"rails": "x"},
        {"rails": {"order": [-1]}},
        {"rails": {"order": [0], "miscabled": [{"rail": 2**63, "adapter": "a", "reason": "b"}]}},
        {"relativeSpeed": {"products": "fast"}},
        {"relativeSpeed": {"products": "-1e308", "memory": "1"}},
        {"relativeSpeed": {"products": "1e999", "memory": "1"}},
    ],
)
def test_unreadable_health_is_that_of_a_usual_node(broken: Raw) -> None:
    record = node_healths.answered(reporting.raw_object("n1", spec=broken))
    assert (record.rails, record.relative_speed) == (None, EVEN)


def test_only_rails_and_speed_wake_a_cycle() -> None:
    def health(**content: Any) -> HealthRecord:
        return node_healths.answered(reporting.raw_object("n1", spec=CONTENT | content))

    assert not node_healths.is_decisive(health(), health(slow=["another"]))
    assert node_healths.is_decisive(health(), health(relativeSpeed=None))
    assert node_healths.is_decisive(None, health())
    assert not node_healths.is_decisive(
        None, node_healths.answered(reporting.raw_object("n1", spec={"hardware": "8 GPUs"}))
    )
