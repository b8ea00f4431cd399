"""Probe tasks for polling agents; their messages are validated."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import pytest

from railwright_controllers.agents import probe_tasks
from railwright_controllers.agents.probe_tasks import Poll, ProbeTasks
from railwright_process.messages import RefusedError
from railwright_topology.probing import keys
from railwright_topology.probing.readings import Reading

PLACE = {"host": "10.0.0.1", "port": 7946}
SEEN = Reading(1e-5, 1e9)


class Office:
    """ProbeTasks on a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.probe_tasks = ProbeTasks(lambda: self.now_s)
        self.probe_tasks.selected = {"a": ("10.0.0.1",), "b": ("10.0.0.2",)}

    async def there(self, *nodes: str) -> dict[str, asyncio.Task[dict[str, Any]]]:
        """Agents that poll, each waiting for a probe task."""
        polls = {}
        for at, node in enumerate(nodes):
            place = Poll(f"10.0.0.{at + 1}", 7946)
            await self.probe_tasks.poll(node, place)
            polls[node] = asyncio.create_task(self.probe_tasks.poll(node, place))
        await asyncio.sleep(0)
        return polls


async def test_agent_is_available_once_it_polls_with_its_key() -> None:
    office = Office()
    first = await office.probe_tasks.poll("a", Poll())
    assert {*first} == {"key"}
    assert not office.probe_tasks.there()
    polls = asyncio.create_task(office.probe_tasks.poll("a", Poll("10.0.0.1", 7946)))
    await asyncio.sleep(0)
    assert office.probe_tasks.there() == {"a"}
    office.now_s = probe_tasks.ABSENT_S + 1
    assert not office.probe_tasks.there()
    polls.cancel()


async def test_task_is_dispatched_and_its_result_is_the_reading() -> None:
    office = Office()
    polls = await office.there("a", "b")
    sent = asyncio.create_task(office.probe_tasks.dispatch(("a", "b"), seconds=0.3))
    reported = await polls["a"]
    assert {key: reported[key] for key in ("host", "port", "seconds", "crowd")} == {
        "host": "10.0.0.2",
        "port": 7946,
        "seconds": 0.3,
        "crowd": False,
    }
    # An answer that was lost on its way is given again.
    assert await office.probe_tasks.poll("a", Poll("10.0.0.1", 7946)) == reported
    done = Poll("10.0.0.1", 7946, "", reported["probeTask"], 1e-5, 1e9)
    again = asyncio.create_task(office.probe_tasks.poll("a", done))
    assert await sent == SEEN
    again.cancel()
    polls["b"].cancel()


async def test_probe_task_has_the_key_of_its_pair() -> None:
    """A compromised agent has its token and the keys of its own probe tasks, and none of others."""
    office = Office()
    polls = await office.there("a", "b")
    sent = [
        asyncio.create_task(office.probe_tasks.dispatch(pair, seconds=0.3))
        for pair in (("a", "b"), ("b", "a"))
    ]
    reported = {node: await task for node, task in polls.items()}
    tokens = {node: each["key"] for node, each in reported.items()}
    assert {node: each["source"] for node, each in reported.items()} == {"a": "a", "b": "b"}
    assert reported["a"]["pairKey"] == keys.pair_key(tokens["b"], "a")
    assert reported["b"]["pairKey"] == keys.pair_key(tokens["a"], "b")
    assert len({*tokens.values(), reported["a"]["pairKey"], reported["b"]["pairKey"]}) == 4
    for each in sent:
        each.cancel()


@pytest.mark.parametrize(
    "host", ["10.0.0.2", "192.0.2.1", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"]
)
async def test_agent_at_a_strange_address_is_unfit(host: str) -> None:
    """Another node's address, or one at which some cloud serves metadata."""
    office = Office()
    assert await office.probe_tasks.poll("a", Poll(host, 7946)) == {}
    assert (
        "neither an address of the node's status nor in spec.prob" in office.probe_tasks.unfit["a"]
    )
    assert not office.probe_tasks.there()


async def test_agent_at_a_declared_network_is_there() -> None:
    office = Office()
    office.probe_tasks.networks = ("192.0.2.0/24",)
    at_a_rail = Poll("192.0.2.77", 7946)
    await office.probe_tasks.poll("a", at_a_rail)
    polls = asyncio.create_task(office.probe_tasks.poll("a", at_a_rail))
    await asyncio.sleep(0)
    assert office.probe_tasks.there() == {"a"}
    polls.cancel()
    await office.probe_tasks.poll("a", Poll("192.0.3.77", 7946))
    assert not office.probe_tasks.there()


async def test_no_task_between_absent_agents() -> None:
    office = Office()
    polls = await office.there("a")
    assert await office.probe_tasks.dispatch(("a", "b"), seconds=0.3) == Reading()
    assert await office.probe_tasks.dispatch(("b", "a"), seconds=0.3) == Reading()
    polls["a"].cancel()


async def test_task_without_a_result_gives_an_empty_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_tasks, "OVERHEAD_S", 0.0)
    office = Office()
    polls = await office.there("a", "b")
    assert await office.probe_tasks.dispatch(("a", "b"), seconds=0.01) == Reading()
    for each in polls.values():
        each.cancel()


async def test_agent_polls_again_after_the_hold_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_tasks, "HOLD_S", 0.0)
    office = Office()
    polls = await office.there("a")
    assert {*await polls["a"]} == {"key"}


async def test_agent_that_is_deselected_or_unfit_stops_polling() -> None:
    office = Office()
    polls = await office.there("a", "b")
    assert await office.probe_tasks.poll("a", Poll(unfit="no port")) == {}
    assert office.probe_tasks.unfit == {"a": "no port"}
    assert office.probe_tasks.there() == {"b"}
    office.probe_tasks.selected = {}
    assert await office.probe_tasks.poll("b", Poll("10.0.0.2", 7946)) == {}
    office.probe_tasks.forget_all_but(())
    assert not office.probe_tasks.unfit
    for each in polls.values():
        each.cancel()


async def test_what_an_agent_does_not_repeat_holds_no_more() -> None:
    """It may not poll for hours, as its node is busy, and what hindered it is mended meanwhile."""
    office = Office()
    await office.probe_tasks.poll("a", Poll(unfit="no port"))
    office.now_s = probe_tasks.UNFIT_S - 1
    assert office.probe_tasks.unfit == {"a": "no port"}
    office.now_s = probe_tasks.UNFIT_S + 1
    assert not office.probe_tasks.unfit


async def test_poll_is_to_be_repeated_until_surveys_were_looked_for() -> None:
    """An agent that goes on after the controllers started again must not stop in that time."""
    office = Office()
    office.probe_tasks.selected = None
    with pytest.raises(RefusedError) as refused:
        await office.probe_tasks.poll("a", Poll("10.0.0.1", 7946))
    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE


def test_poll_of_an_agent_is_read() -> None:
    stated = {**PLACE, "probeTask": 3, "latency_s": 1e-5, "bytes_per_s": 1e9}
    found = probe_tasks.read(json.dumps(stated).encode())
    assert (found, found.reading) == (Poll("10.0.0.1", 7946, "", 3, 1e-5, 1e9), SEEN)
    assert probe_tasks.read(b"{}") == Poll()
    assert probe_tasks.read(b'{"unfit": "x"}').unfit == "x"


@pytest.mark.parametrize(
    "stated", [b'{"latency_s": 61}', b'{"bytes_per_s": 4e21}', b'{"bytes_per_s": 0}']
)
def test_impossible_measurement_is_no_reading(stated: bytes) -> None:
    """A result may contain wrong values of the other node."""
    assert probe_tasks.read(stated).reading == Reading()


@pytest.mark.parametrize(
    "stated",
    [
        b"{",
        b"[]",
        b'{"unfit": 1}',
        b'{"host": "node-1", "port": 7946}',
        b'{"host": "10.0.0.1"}',
        b'{"host": "10.0.0.1", "port": 0}',
        b'{"host": "10.0.0.1", "port": 65536}',
        b'{"host": "10.0.0.1", "port": true}',
        b'{"host": "224.0.0.1", "port": 7946}',
        b'{"host": "0.0.0.0", "port": 7946}',
        b'{"host": "127.0.0.1", "port": 6443}',
        b'{"host": "169.254.169.254", "port": 80}',
        b'{"host": "::1", "port": 7946}',
        b'{"host": "::ffff:127.0.0.1", "port": 7946}',
        b'{"host": "fe80::1", "port": 7946}',
        b'{"host": "255.255.255.255", "port": 7946}',
        b'{"probeTask": -1}',
        b'{"latency_s": "1"}',
        b'{"host": "fe80::1%eth0", "port": 7946}',
        b'{"bytes_per_s": true}',
    ],
)
def test_invalid_poll_is_refused(stated: bytes) -> None:
    with pytest.raises(RefusedError, match="400"):
        probe_tasks.read(stated)
