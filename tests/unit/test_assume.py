"""What is assumed of nodes for the pods of aborting gangs."""

from __future__ import annotations

import pytest

from fixtures import GPU, node
from fixtures.attempts import LOST, RECOVERING, entry, pods, seen, world_of
from railwright_scheduler import assume
from railwright_scheduler.cluster_state import ObservedAttempt


@pytest.mark.parametrize(("line", "used"), [("- .", 8), ("-~ n1", 8), ("-! n1", 0), (". n1", 0)])
def test_unbound_pod_of_an_abort_holds_its_node(line: str, used: int) -> None:
    """An earlier leader may still be binding it."""
    state = world_of(
        seen(RECOVERING),
        nodes=(node("n0"), node("n1")),
        entries=(entry(cause=LOST),),
        attempts={("a", 1): ObservedAttempt(pods=pods(line))},
    )
    first, _ = assume.subtract_assumed(state, state.ledger.entries)
    assert first.used.get(GPU, 0) == used
