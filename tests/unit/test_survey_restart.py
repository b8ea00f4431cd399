"""A surveyor that is killed leaves its progress to the next one."""

from __future__ import annotations

import collections

import pytest

from fixtures.survey_office import SETTLED, Office
from railwright_controllers.surveys import surveyor
from railwright_controllers.watch import files
from railwright_kube.errors import Unreachable
from railwright_topology.probing.readings import SAMPLES_MAX

HOUR_S = 3600.0
AFTER = 40


class KilledError(Exception):
    """The process ends at this probe."""


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    """It stores the samples of a running survey after each probe."""
    monkeypatch.setattr(surveyor, "PROGRESS_S", surveyor.PROBE_S)
    return Office()


async def _kill(office: Office) -> list[frozenset[str]]:
    """Kill the surveyor during a survey; return the pairs that were measured before, in order."""

    def die() -> None:
        if len(office.probe_tasks.sent) > AFTER:
            raise KilledError

    office.probe_tasks.meanwhile = die
    with pytest.raises(KilledError):
        await office.run_checks(SETTLED + 1)
    office.probe_tasks.meanwhile = lambda: None
    office.surveyor = office.leader()
    return [frozenset(pair) for pair in office.probe_tasks.sent[:-1]]


async def test_measured_pairs_are_not_measured_again(office: Office) -> None:
    """The next process continues with the samples that are missing."""
    before = await _kill(office)
    sent = await office.run_checks(SETTLED + 1)
    assert sent
    after = [frozenset(pair) for pair in office.probe_tasks.sent[-sent:]]
    times = collections.Counter(before)
    done = {pair for pair, samples in times.items() if samples == SAMPLES_MAX}
    assert done
    assert done.isdisjoint(after)
    assert max((times + collections.Counter(after)).values()) == SAMPLES_MAX
    assert office.placed(office.nodes)
    # The result replaces the samples.
    assert '"samples":[]' in office.stored[files.PROGRESS]


@pytest.mark.parametrize("later_s", [HOUR_S, -HOUR_S], ids=["", "by a clock that was ahead"])
async def test_samples_of_an_hour_ago_are_measured_again(office: Office, later_s: float) -> None:
    before = await _kill(office)
    office.wall_s += later_s
    sent = await office.run_checks(SETTLED + 1)
    after = [frozenset(pair) for pair in office.probe_tasks.sent[-sent:]]
    assert {*before} <= {*after}
    assert len(after) > len(before)
    assert office.placed(office.nodes)


@pytest.mark.parametrize("text", ["{", "{}", '{"stored_s": 1e9}', "[]"])
async def test_unreadable_progress_is_ignored(office: Office, text: str) -> None:
    before = await _kill(office)
    await office.keep({files.PROGRESS: text})
    sent = await office.run_checks(SETTLED + 1)
    assert sent > len(before)
    assert office.placed(office.nodes)


async def test_progress_that_cannot_be_stored_ends_no_survey(office: Office) -> None:
    office.refusal = Unreachable("no server")
    assert await office.run_checks(SETTLED + 1) > AFTER
    office.refusal = None
    await office.run_checks(SETTLED)
    assert office.placed(office.nodes)


async def test_pause_of_a_silent_node_outlives_the_process() -> None:
    """A node without a result is measured again after growing pauses, whichever process has it."""
    office = Office()
    silent = sorted(office.nodes)[0]
    office.network.dead = frozenset({silent})
    assert await office.run_checks(SETTLED + 1)
    hours = []
    for _ in range(24):
        office.surveyor = office.leader()
        assert not await office.run_checks(SETTLED + 1)
        office.now_s += HOUR_S
        office.wall_s += HOUR_S
        hours.append(await office.run_checks(SETTLED + 1) > 0)
    assert hours[0]
    assert 3 <= sum(hours) <= 8
