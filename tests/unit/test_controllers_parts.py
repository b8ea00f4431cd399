"""How the parts of the controllers are constructed."""

from __future__ import annotations

import time
from typing import Any, cast

from prometheus_client import CollectorRegistry

from fixtures import constructed
from railwright_controllers.watch.pods import RunningPod


class Constructed:
    """All parts, without an API server."""

    def __init__(self) -> None:
        self.leads = True
        self.parts = constructed.controllers(CollectorRegistry(), is_leader=lambda: self.leads)

    def pod(self, version: int, *, terminal: bool = False, trains: bool = False) -> None:
        record = RunningPod("uid", version, node="n1", terminal=terminal, trains=trains)
        self.parts.informers.pods.absorb(record)


async def test_surveys_leave_out_nodes_that_train() -> None:
    constructed = Constructed()
    constructed.pod(1, trains=True)
    assert constructed.parts.surveyor.busy() == {"n1"}


async def test_token_of_an_ended_pod_is_of_no_node() -> None:
    constructed = Constructed()
    node_of = constructed.parts.server.tokens.node_of
    assert node_of("uid") is None
    constructed.pod(1)
    assert node_of("uid") == "n1"
    constructed.pod(2, terminal=True)
    assert node_of("uid") is None


async def test_published_and_stored_times_are_of_the_calendar() -> None:
    parts = Constructed().parts
    for each in (parts.fabric_reporter, parts.surveyor):
        assert abs(each.wall_clock() - time.time()) < 60


async def test_server_of_agents_needs_lease_lists_and_keys() -> None:
    constructed = Constructed()
    parts, is_ready = constructed.parts, constructed.parts.server.is_ready
    *others, last = parts.informers.all
    for informer in others:
        informer._first_list.set()
    parts.keys._keys = {"key": cast(Any, None)}
    assert not is_ready()
    last._first_list.set()
    assert is_ready()
    constructed.leads = False
    assert not is_ready()
    constructed.leads = True
    parts.keys._keys = {}
    assert not is_ready()


async def test_all_that_publishes_waits_for_the_lease() -> None:
    parts = Constructed().parts
    assert [*parts.leading] == [
        parts.informers.discovery.run,
        parts.fabric_reporter.run,
        parts.health_reporter.run,
        parts.surveyor.run,
    ]
    assert [*parts.tasks] == [*(each.run for each in parts.informers.all), parts.keys.run]


async def test_cache_without_news_is_late() -> None:
    informers = Constructed().parts.informers
    assert informers.late() == ()
    informers.nodes._received_s -= 200.0
    assert informers.late() == ("nothing was received of Nodes for more than 3 minutes",)
