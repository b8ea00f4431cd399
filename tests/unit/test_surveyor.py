"""The operator surveys when it should, keeps what it found, and tells what hinders it.

The network is planted; probe tasks are answered by it at once, on a clock that the test moves.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fixtures.survey_office import SETTLED, Office
from railwright_api import names
from railwright_controllers.agents.probe_tasks import Poll
from railwright_controllers.surveys import surveyor
from railwright_kube.errors import Unreachable
from railwright_scheduler.model.snapshot import Taint
from railwright_topology.sources import documents

HOUR_S = 3600.0
PATIENCE = int(surveyor.PATIENCE_S / surveyor.CHECK_EVERY_S) + 1
BETWEEN = int(surveyor.BETWEEN_S / surveyor.CHECK_EVERY_S) + 1


async def test_due_nodes_are_measured_once_after_settling() -> None:
    """The survey starts once the selection is unchanged for a time."""
    office = Office()
    assert not await office.run_checks(SETTLED - 1)
    assert await office.run_checks(2)
    assert office.placed(office.nodes)
    assert not office.surveyor.problems
    assert not await office.run_checks(2 * BETWEEN)
    assert not office.probe_tasks.selected
    office.surveyor = office.leader()
    assert not await office.run_checks(2 * BETWEEN)


async def test_mode_never_selects_no_node() -> None:
    office = Office(mode="Never")
    assert not await office.run_checks(PATIENCE)
    assert not office.probe_tasks.selected


async def test_nodes_kept_by_control_plane_are_not_measured() -> None:
    """No job runs on them."""
    office = Office()
    kept = {*sorted(office.nodes)[:3]}
    taints = (Taint(names.CONTROL_PLANE, "", "NoSchedule"),)
    for name in kept:
        before, office.nodes[name] = office.nodes[name], replace(office.nodes[name], taints=taints)
        office.discovery.node_changed(before, office.nodes[name])
    assert await office.run_checks(SETTLED + 1)
    assert not {node for pair in office.probe_tasks.sent for node in pair} & kept
    assert office.placed(office.nodes.keys() - kept)
    assert not office.surveyor.problems


async def test_busy_nodes_are_measured_later_and_join() -> None:
    """The second survey joins the stored one."""
    office = Office()
    office.busy = {*sorted(office.nodes)[:4]}
    assert await office.run_checks(SETTLED + 1)
    assert not {node for pair in office.probe_tasks.sent for node in pair} & office.busy
    assert office.placed(office.nodes.keys() - office.busy)
    await office.run_checks()
    (waiting,) = office.surveyor.problems
    assert waiting.startswith("4 of 4 nodes that are to be measured are busy: ")
    office.busy = set()
    assert await office.run_checks(BETWEEN + SETTLED)
    assert office.placed(office.nodes)


async def test_a_node_that_a_job_takes_meanwhile_is_left_alone() -> None:
    office = Office()
    taken, after = sorted(office.nodes)[0], 5

    def a_job_begins() -> None:
        if len(office.probe_tasks.sent) == after:
            office.busy = {taken}

    office.probe_tasks.meanwhile = a_job_begins
    assert await office.run_checks(SETTLED + 1) > after
    # Who is busy is looked at anew every second, in which a few more are sent.
    late = after + int(surveyor.BUSY_S / surveyor.PROBE_S) + 1
    assert not [pair for pair in office.probe_tasks.sent[late:] if taken in pair]
    assert office.placed(office.nodes.keys() - {taken})


async def test_absent_agents_are_awaited_and_reported() -> None:
    office = Office()
    missing = {*sorted(office.nodes)[:3]}
    office.probe_tasks.present -= missing
    assert not await office.run_checks(PATIENCE - 1)
    assert await office.run_checks(2)
    await office.run_checks()
    first = ", ".join(sorted(missing))
    assert office.surveyor.problems == (
        f"3 of 3 nodes that are to be measured have no agent that answers: {first}",
    )
    assert office.placed(office.nodes.keys() - missing)


async def test_vanished_agent_is_reported_at_once() -> None:
    """The survey does not wait for an agent that polled before."""
    office = Office()
    await office.run_checks()
    gone = sorted(office.nodes)[0]
    office.probe_tasks.present.remove(gone)
    await office.run_checks()
    assert office.surveyor.problems == (
        f"1 of 12 nodes that are to be measured have no agent that answers: {gone}",
    )
    assert await office.run_checks(SETTLED + 1)


async def test_cluster_without_agents_has_no_survey_problem() -> None:
    office = Office()
    office.probe_tasks.present.clear()
    assert not await office.run_checks(2 * PATIENCE)
    assert not office.surveyor.problems


async def test_agent_unable_to_answer_probes_is_reported() -> None:
    office = Office()
    await office.run_checks()
    node = sorted(office.nodes)[0]
    office.probe_tasks.present.remove(node)
    await office.probe_tasks.poll(node, Poll(unfit="10.0.0.1:7946 is taken"))
    await office.run_checks()
    assert f"{node}: 10.0.0.1:7946 is taken" in office.surveyor.problems


async def test_what_is_too_old_is_measured_again() -> None:
    office = Office(maxAgeHours=24)
    await office.run_checks(SETTLED + 1)
    assert not await office.run_checks(BETWEEN)
    office.wall_s += 25 * HOUR_S
    assert await office.run_checks(SETTLED + 1)
    assert office.placed(office.nodes)


@pytest.mark.parametrize("is_seen_gone", [True, False], ids=["gone for a day", "at once"])
async def test_a_machine_with_the_name_of_one_that_is_gone_is_measured(is_seen_gone: bool) -> None:
    """The Node was deleted, and there is another one of its name."""
    office = Office()
    await office.run_checks(SETTLED + 1)
    name = min(office.nodes)
    before = office.nodes.pop(name)
    office.discovery.node_changed(before, None)
    if is_seen_gone:
        await office.run_checks(2)
        assert f'"{name}"' not in office.stored["probes.json.gz"]
        office.now_s += 24 * HOUR_S
        office.wall_s += 24 * HOUR_S
    office.nodes[name] = replace(before, uid="another")
    office.discovery.node_changed(None, office.nodes[name])
    office.probe_tasks.sent.clear()
    await office.run_checks(BETWEEN + SETTLED)
    assert name in {node for pair in office.probe_tasks.sent for node in pair}
    assert office.placed(office.nodes)


async def test_emptied_config_map_ends_all_pauses() -> None:
    """To have all measured again, the site empties it: also nodes that had no result for a day."""
    office = Office()
    office.network.dead = frozenset(sorted(office.nodes)[:3])
    for _ in range(24):
        await office.run_checks(SETTLED + 1)
        office.now_s += HOUR_S
        office.wall_s += HOUR_S
    office.network.dead = frozenset()
    office.stored.clear()
    office.give()
    await office.run_checks(BETWEEN + SETTLED)
    assert office.placed(office.nodes)


async def test_new_nodes_do_not_wait_for_those_without_a_result() -> None:
    """Nine nodes never answer and are tried twice a day; three join."""
    office = Office()
    new = {name: office.nodes.pop(name) for name in sorted(office.nodes)[:3]}
    for node in new.values():
        office.discovery.node_changed(node, None)
    office.probe_tasks.present -= new.keys()
    office.network.dead = frozenset(office.nodes)
    for _ in range(30):
        await office.run_checks(SETTLED + 1)
        office.now_s += HOUR_S
        office.wall_s += HOUR_S
    office.nodes |= new
    for node in new.values():
        office.discovery.node_changed(None, node)
    office.probe_tasks.present |= new.keys()
    await office.run_checks(BETWEEN + SETTLED)
    assert new.keys() <= {node for pair in office.probe_tasks.sent for node in pair}


async def test_failed_survey_is_retried_with_backoff() -> None:
    """Nodes without a result are measured again after growing pauses."""
    office = Office()
    silent = sorted(office.nodes)[0]
    office.network.dead = frozenset({silent})
    assert await office.run_checks(SETTLED + 1)
    assert office.placed(office.nodes.keys() - {silent})
    hours = []
    for _ in range(24):
        office.now_s += HOUR_S
        hours.append(await office.run_checks(SETTLED + 1) > 0)
    assert hours[0]
    assert 3 <= sum(hours) <= 8
    assert office.placed(office.nodes.keys() - {silent})


async def test_survey_that_failed_to_store_is_stored_later() -> None:
    office = Office()
    office.refusal = Unreachable("no server")
    assert await office.run_checks(SETTLED + 1)
    assert not await office.run_checks(BETWEEN)
    assert office.surveyor.problems == ("the survey cannot be stored: no server",)
    office.refusal = None
    assert not await office.run_checks(BETWEEN)
    assert office.placed(office.nodes)


async def test_unreadable_survey_is_not_stored_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "CHARACTERS_MAX", 500)
    office = Office()
    assert await office.run_checks(SETTLED + 1)
    assert not await office.run_checks(2 * BETWEEN)
    (problem,) = office.surveyor.problems
    assert re.match(r"the survey cannot be read back: .* has \d+ char", problem), problem
    assert not office.stored


async def test_busy_nodes_are_queried_once_for_all_failures() -> None:
    """It is looked up for every node of the cluster."""
    office = Office()
    office.network.dead = frozenset(office.nodes)
    assert await office.run_checks(SETTLED + 1)
    assert max(office.asked.values()) <= 3


async def test_no_survey_without_its_config_map() -> None:
    office = Office()
    office.discovery.files_changed(office.given, None)
    assert not await office.run_checks(PATIENCE)
    assert office.surveyor.problems == (
        "no node is measured: there is no ConfigMap railwright-probes to store the result",
    )


async def test_uplinks_are_saturated_only_if_allowed_and_idle() -> None:
    """Concurrent probes need `spec.probing.uplinks` and idle nodes."""
    office = Office(uplinks=True)
    assert await office.run_checks(SETTLED + 1)
    rooms = office.discovery.found.fabric.links[-1].leaving
    assert len(rooms) == 3
    busy = Office(uplinks=True)
    name = sorted(busy.nodes)[0]
    busy.busy = {name}
    assert await busy.run_checks(SETTLED + 1)
    assert not busy.discovery.found.fabric.links[-1].leaving


async def test_only_measurable_nodes_are_selected_to_poll() -> None:
    office = Office()
    name = sorted(office.nodes)[0]
    office.busy = {name}
    await office.run_checks()
    assert {*(office.probe_tasks.selected or ())} == office.nodes.keys() - {name}
    await office.run_checks(SETTLED + 1)
    assert not office.probe_tasks.selected


async def test_busy_nodes_are_reported_as_waiting() -> None:
    office = Office()
    office.busy = {*office.nodes}
    assert not await office.run_checks(PATIENCE)
    assert not office.probe_tasks.selected
    (waiting,) = office.surveyor.problems
    assert waiting.startswith("12 of 12 nodes that are to be measured are busy: ")


async def test_survey_without_result_is_reported_and_retried() -> None:
    """The problem states that no node was placed."""
    office = Office()
    office.network.dead = frozenset(office.nodes)
    assert await office.run_checks(SETTLED + 1)
    assert not await office.run_checks(BETWEEN)
    assert office.surveyor.problems == ("the last survey placed none of its 12 nodes",)
    office.network.dead = frozenset()
    office.now_s += HOUR_S
    assert await office.run_checks(SETTLED + 1)
    assert office.placed(office.nodes)
    await office.run_checks()
    assert not office.surveyor.problems


async def test_a_node_that_is_not_ready_is_not_waited_for() -> None:
    office = Office()
    name = sorted(office.nodes)[0]
    office.nodes[name] = replace(office.nodes[name], ready=False)
    office.probe_tasks.present.remove(name)
    assert await office.run_checks(SETTLED + 1)
    assert office.placed(office.nodes.keys() - {name})
