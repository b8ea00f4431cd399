"""A node that was lost counts for reservations for five minutes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import node
from fixtures.attempts import LOST, entry, pods, world_of
from fixtures.observing import Watched
from railwright_scheduler import assume
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.model.snapshot import LOST_GRACE_S


def test_unready_node_is_recently_lost_for_five_minutes() -> None:
    seen = Watched()

    def recently_lost() -> list[bool]:
        return [each.recently_lost for each in seen.world().nodes]

    well = seen.nodes["uid-n1"]
    seen.nodes["uid-n1"] = replace(well, ready=False)
    assert recently_lost() == [False, True]
    seen.now_s += LOST_GRACE_S - 1
    assert recently_lost() == [False, True]
    seen.now_s += 1
    assert recently_lost() == [False, False]
    seen.nodes["uid-n1"] = well
    assert recently_lost() == [False, False]
    seen.nodes["uid-n1"] = replace(well, ready=False)
    assert recently_lost() == [False, True], "it is lost anew"


def test_cordoned_node_has_no_grace() -> None:
    seen = Watched()
    seen.nodes["uid-n1"] = replace(seen.nodes["uid-n1"], cordoned=True)
    assert not any(each.recently_lost for each in seen.world().nodes)


@pytest.mark.parametrize("age_s", [0.0, LOST_GRACE_S - 1, LOST_GRACE_S])
def test_node_of_an_aborted_attempt_has_the_same_grace(age_s: float) -> None:
    """As long as a pod of the attempt that lost it is left there."""
    aborted = entry(cause=LOST)
    attempts = {aborted.key: ObservedAttempt(pods("n0 n1"), age_s=age_s)}
    world = world_of(nodes=(node("n0"), node("n1")), entries=(aborted,), attempts=attempts)
    found = {each.name: each for each in assume.subtract_assumed(world, world.ledger.entries)}
    assert found["n1"].unavailable is not None
    assert [found[name].recently_lost for name in ("n0", "n1")] == [False, age_s < LOST_GRACE_S]
