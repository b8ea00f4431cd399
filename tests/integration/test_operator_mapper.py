"""Processes of the mapper are killed, or hang: jobs start all the same, and the next
ones are mapped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from integration import operator_site
from integration.operator_site import Floor, Site
from integration.test_operator_mapping import STAGES_FIRST, placement
from railwright_operator.mapping_requests import PROCESSES
from railwright_scheduler.policy.mappings import WAIT_S
from railwright_testbed import waiting

GANG: dict[str, Any] = {"nodes": 8, "processes": 8, "workload": STAGES_FIRST}

OTHERS_S = 5.0
"""The longest that a fault of the mapper may keep others from starting."""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    """It hangs: neither answers nor ends."""
    os.kill(pid, signal.SIGSTOP)


@pytest.fixture
def floor(site: Site) -> Iterator[Floor]:
    """Nodes for a gang whose ranks are mapped, and for others."""
    with operator_site.floor_on(site, (4, 4, 4)) as floor:
        until_all_run(site)
        yield floor


def until_all_run(site: Site) -> list[int]:
    def all_run() -> list[int] | None:
        pids = site.operator.mapper_pids()
        return pids if len(pids) == PROCESSES else None

    return waiting.until(all_run, "all processes", deadline_s=30)


def truncated(floor: Floor, name: str) -> str | None:
    mapping = placement(floor, name).spec.mapping
    assert mapping is not None
    return mapping.truncated


def is_mapped_again(site: Site, floor: Floor) -> None:
    """At the latest when a request went to each process that hangs."""
    for number in range(PROCESSES + 1):
        floor.clear()
        until_all_run(site)
        floor.apply(f"next-{number}", **GANG).until_bound()
        if truncated(floor, f"next-{number}") is None:
            return
    pytest.fail("no gang is mapped any more")


def test_killed_while_idle_no_mapping_is_lost(site: Site, floor: Floor) -> None:
    """Others are started before a request comes. A busy machine can take longer for that than a
    gang waits: that is late, and not lost."""
    before = until_all_run(site)
    for pid in before:
        kill(pid)
    waiting.until(
        lambda: {*before}.isdisjoint(until_all_run(site)), "other processes", deadline_s=30
    )
    floor.apply("a", **GANG).until_bound()
    assert truncated(floor, "a") in (None, "MappingLate")
    is_mapped_again(site, floor)


def test_hung_a_gang_starts_in_the_networks_order(site: Site, floor: Floor) -> None:
    """Jobs that need no mapping do not notice."""
    before = until_all_run(site)
    for pid in before:
        stop(pid)
    gang = floor.apply("gang", **GANG)
    gang.until_reason("MappingPending")
    floor.apply("plain", nodes=4).until_bound(deadline_s=OTHERS_S)
    gang.until_bound(deadline_s=WAIT_S + OTHERS_S)
    assert truncated(floor, "gang") == "MappingLate"
    assert gang.nodes() == sorted(gang.nodes())
    is_mapped_again(site, floor)


def test_killed_in_the_middle_of_a_mapping(site: Site, floor: Floor) -> None:
    """The gang starts at once: what killed the process could kill the next one too."""
    before = until_all_run(site)
    for pid in before:
        stop(pid)
    gang = floor.apply("gang", **GANG)
    gang.until_reason("MappingPending")
    for pid in before:
        kill(pid)
    gang.until_bound(deadline_s=OTHERS_S)
    assert truncated(floor, "gang") == "MappingFailed"
    is_mapped_again(site, floor)
