"""What becomes of an action that the API server refuses, delays, answers late, or not at all."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from fixtures import attempts
from fixtures.executing import ENTRY, Shell, raw_pod, settled
from railwright_kube import errors
from railwright_operator.write.executor import (
    LATE_S,
    PAUSE_S,
    TROUBLED_MAX,
    UNDER_WAY_LOW,
    UNDER_WAY_MAX,
)
from railwright_scheduler.attempt.gang import BindPod, CreatePod, WritePlacement

POD = attempts.pods("-")[0]
CREATE = CreatePod(ENTRY, 0)
BIND = BindPod(ENTRY, POD)
GANG = [CreatePod(ENTRY, rank) for rank in range(3 * UNDER_WAY_MAX)]
OTHERS = [CreatePod(attempts.entry(job_uid="c"), rank) for rank in range(3 * UNDER_WAY_MAX)]
OTHER = CreatePod(attempts.entry(job_uid="b"), 0)
QUOTA = errors.ForbiddenError(403, "Forbidden", message="exceeded quota: team")
RIGHTS = errors.RightsError(403, "Forbidden", message='User "us" cannot create resource "pods"')
BUSY = errors.TooManyRequestsError(429, "TooManyRequests", message="slow down")
CONFLICT = errors.ConflictError(409, "Conflict", message="the UID is another")


async def test_created_pod_is_cached_before_its_watch_event() -> None:
    shell = Shell()
    assert await shell.do(CREATE) == ["create"]
    assert list(shell.pods.records) == ["u10"]
    assert shell.reported == (None, "")


async def test_what_admission_refuses_is_the_attempts_refusal() -> None:
    shell = Shell()
    shell.server.answers["create"] = QUOTA
    await shell.do(CREATE)
    assert shell.reported == ("exceeded quota: team", "")


async def test_a_right_that_we_lack_is_our_trouble_and_tried_again() -> None:
    shell = Shell()
    shell.server.answers["create"] = RIGHTS
    await shell.do(CREATE)
    refusal, hindrance = shell.reported
    assert refusal is None
    assert "cannot create" in hindrance
    shell.now_s += PAUSE_S.cap_s
    shell.server.answers["create"] = raw_pod()
    assert await shell.do(CREATE) == ["create"]
    assert list(shell.pods.records) == ["u10"]


async def test_failed_request_is_not_retried_before_its_pause() -> None:
    """The next cycles skip the action until its back-off ends."""
    shell = Shell()
    shell.server.answers["create"] = BUSY
    assert await shell.do(CREATE) == ["create"]
    assert await shell.do(CREATE) == []
    shell.now_s += 2 * PAUSE_S.base_s
    assert await shell.do(CREATE) == ["create"]


async def test_unreadable_answer_pauses_its_own_request_alone() -> None:
    """The response is no Pod; the action is not repeated before its pause."""
    shell = Shell()
    shell.server.answers["create"] = {"metadata": {"uid": "u10"}}
    assert await shell.do(CREATE) == ["create"]
    hindrance = "ValueError: not a Pod: Object missing required field `name` - at `$.metadata`"
    assert shell.reported == (None, hindrance)
    assert await shell.do(CREATE) == []


async def test_pauses_grow_with_each_failure_and_end_with_a_success() -> None:
    shell = Shell()
    shell.server.answers["create"] = BUSY
    for _ in range(8):
        await shell.do(CREATE)
        shell.now_s += 2 * PAUSE_S.cap_s
    await shell.do(CREATE)
    shell.now_s += PAUSE_S.base_s
    assert await shell.do(CREATE) == []
    shell.now_s += 2 * PAUSE_S.cap_s
    shell.server.answers["create"] = raw_pod()
    assert await shell.do(CREATE) == ["create"]
    assert await shell.do(CREATE) == ["create"]


async def test_action_in_flight_is_not_started_twice_and_wakes_loop() -> None:
    """The end of the request wakes the next cycle."""
    shell = Shell()
    shell.server.held.clear()
    assert await shell.do(CREATE) == ["create"]
    assert await shell.do(CREATE) == []
    assert shell.woken == 0
    shell.server.held.set()
    await shell.do()
    assert shell.woken == 1
    assert list(shell.pods.records) == ["u10"]


async def test_attempt_is_binding_while_a_pod_of_it_may_be_bound() -> None:
    shell = Shell()
    await shell.do(CREATE)
    shell.server.held.clear()
    assert not shell.executor.is_binding(ENTRY.key)
    assert await shell.do(CREATE, BIND) == ["create", "create"]
    assert shell.executor.is_binding(ENTRY.key)
    shell.server.held.set()
    await settled()
    assert not shell.executor.is_binding(ENTRY.key)


async def test_request_ended_during_planning_is_not_repeated() -> None:
    shell = Shell()
    shell.server.held.clear()
    await shell.do(CREATE)
    shell.executor.cycle_begins()
    shell.server.held.set()
    await settled()
    shell.executor.start([CREATE])
    await settled()
    assert shell.server.asked == ["create"]
    assert await shell.do(CREATE) == ["create"]


async def test_actions_in_flight_are_bounded_and_loop_is_woken() -> None:
    """At most `UNDER_WAY_MAX` are started; later cycles start the others."""
    shell = Shell()
    shell.server.held.clear()
    gang = [CreatePod(ENTRY, rank) for rank in range(UNDER_WAY_MAX + 10)]
    assert len(await shell.do(*gang)) == UNDER_WAY_MAX
    shell.server.held.set()
    await settled()
    assert shell.woken > 1


async def test_actuator_is_low_once_few_requests_are_under_way() -> None:
    shell = Shell()
    shell.server.held.clear()
    await shell.do(*GANG[: UNDER_WAY_LOW - 1])
    await asyncio.wait_for(shell.executor.until_low(), 1.0)
    await shell.do(*GANG[:UNDER_WAY_LOW])
    low = asyncio.create_task(shell.executor.until_low())
    await settled()
    assert not low.done()
    shell.server.held.set()
    await asyncio.wait_for(low, 1.0)


class Door(asyncio.Event):
    """Lets through as many requests as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.places = asyncio.Semaphore(0)

    async def wait(self) -> Literal[True]:
        await self.places.acquire()
        return True


async def test_actuator_is_low_before_its_last_request_ended() -> None:
    shell = Shell()
    shell.server.held = door = Door()
    await shell.do(*GANG)
    low = asyncio.create_task(shell.executor.until_low())
    for ended in (UNDER_WAY_MAX - UNDER_WAY_LOW, 1):
        assert not low.done()
        for _ in range(ended):
            door.places.release()
        await settled()
    assert low.done()


async def test_requests_without_an_answer_keep_actuator_low() -> None:
    """Nor is it lower than it is once they end."""
    shell = Shell()
    shell.server.held = door = Door()
    await shell.do(*GANG)
    shell.now_s += LATE_S + 1.0
    await shell.do()
    await asyncio.wait_for(shell.executor.until_low(), 1.0)
    await shell.do(*OTHERS)
    for _ in range(UNDER_WAY_MAX):
        door.places.release()
    await settled()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shell.executor.until_low(), 0.01)


async def test_crowded_out_attempt_is_marked_until_its_request() -> None:
    shell = Shell()
    other = attempts.entry(job_uid="b")
    gang = [CreatePod(ENTRY, rank) for rank in range(UNDER_WAY_MAX + 1)]
    shell.server.held.clear()
    await shell.do(*gang, CreatePod(other, 0))
    crowded_out = shell.executor.is_crowded_out
    assert (crowded_out(ENTRY.key), crowded_out(other.key)) == (False, True)
    shell.server.held.set()
    await settled()
    await shell.do(CreatePod(other, 0))
    assert not crowded_out(other.key)


async def test_requests_a_webhook_holds_up_delay_their_gang_alone() -> None:
    shell = Shell()
    shell.server.held.clear()
    assert len(await shell.do(*GANG, OTHER)) == UNDER_WAY_MAX
    shell.now_s += LATE_S + 1.0
    assert len(await shell.do(*GANG, OTHER)) == 1
    assert not shell.executor.is_crowded_out(OTHER.entry.key)


async def test_a_gang_with_failures_gets_few_places() -> None:
    shell = Shell()
    shell.server.answers["create"] = BUSY
    await shell.do(GANG[0])
    shell.server.held.clear()
    assert len(await shell.do(*GANG[1:], OTHER)) == 1 + TROUBLED_MAX


async def test_resolved_failure_is_no_longer_reported() -> None:
    shell = Shell()
    shell.server.answers["create"] = BUSY
    await shell.do(CREATE)
    assert "slow down" in shell.reported[1]
    shell.server.answers["create"] = raw_pod()
    shell.now_s += PAUSE_S.cap_s
    await shell.do(CREATE)
    assert shell.reported == (None, "")


async def test_a_slow_answer_does_not_keep_others_from_starting() -> None:
    shell = Shell()
    shell.server.held.clear()
    await shell.do(CREATE)
    shell.server.held.set()
    assert await shell.do(CreatePod(ENTRY, 1)) == ["create"]


async def test_create_with_unknown_outcome_is_read_back() -> None:
    shell = Shell()
    shell.server.answers["create"] = errors.OutcomeUnknown("the reply was lost")
    assert await shell.do(CREATE) == ["create", "get"]
    assert list(shell.pods.records) == ["u10"]


async def test_a_lost_create_that_never_arrived_is_made_again_later() -> None:
    shell = Shell()
    shell.server.answers["create"] = errors.OutcomeUnknown("the request was lost")
    shell.server.answers["get"] = errors.NotFoundError(404, "NotFound", message="no such pod")
    await shell.do(CREATE)
    assert shell.reported == (None, "the request was lost")
    assert dict(shell.pods.records) == {}


async def test_a_name_taken_by_our_own_pod_is_success() -> None:
    shell = Shell()
    shell.server.answers["create"] = errors.AlreadyExistsError(409, "AlreadyExists", message="is")
    assert await shell.do(CREATE) == ["create", "get"]
    assert shell.reported == (None, "")
    assert list(shell.pods.records) == ["u10"]


async def test_name_taken_by_foreign_pod_is_a_refusal() -> None:
    """The foreign pod is not deleted."""
    shell = Shell()
    taken = errors.AlreadyExistsError(
        409, "AlreadyExists", message='pods "a-worker-0-1" already exists'
    )
    shell.server.answers |= {"create": taken, "get": raw_pod(owner="another")}
    await shell.do(CREATE)
    assert shell.reported[0] == 'pods "a-worker-0-1" already exists'
    assert dict(shell.pods.records) == {}


async def test_binding_names_the_uid_of_its_pod() -> None:
    """The API server refuses it for a pod that was made again under the same name."""
    shell = Shell()
    await shell.do(BIND)
    (body,) = shell.server.bodies
    assert body["metadata"] == {"name": POD.name, "uid": POD.uid}


async def test_a_binding_shows_at_once() -> None:
    shell = Shell()
    await shell.do(CREATE)
    await shell.do(BIND)
    assert shell.pods.records["u10"].node == "n0"


async def test_news_from_before_a_binding_does_not_undo_it() -> None:
    shell = Shell()
    await shell.do(CREATE)
    await shell.do(BIND)
    labelled = raw_pod()
    labelled["metadata"]["resourceVersion"] = "8"
    shell.server.answers["list"] = {"metadata": {"resourceVersion": "8"}, "items": [labelled]}
    await shell.pods._relist()
    assert shell.pods.records["u10"].node == "n0"
    assert shell.pods.records["u10"].rv == 8


async def test_late_answer_to_a_create_does_not_undo_a_binding() -> None:
    """The watch showed the pod first. The answer has the version that the bound record has too."""
    shell = Shell()
    for action in (CREATE, BIND, CREATE):
        await shell.do(action)
    assert shell.pods.records["u10"].node == "n0"


async def test_binding_with_unknown_outcome_is_read_back() -> None:
    shell = Shell()
    await shell.do(CREATE)
    for error in (CONFLICT, errors.OutcomeUnknown("the reply was lost")):
        shell.server.answers |= {"create": error, "get": raw_pod(node="n9")}
        shell.server.answers["get"]["metadata"]["resourceVersion"] = "8"
        assert await shell.do(BIND) == ["create", "get"]
        assert shell.pods.records["u10"].node == "n9"


async def test_binding_that_conflicts_with_the_pod_itself_hinders() -> None:
    shell = Shell()
    await shell.do(CREATE)
    gated = errors.ConflictError(409, "Conflict", message="pod has non-empty .spec.schedulingGates")
    shell.server.answers |= {"create": gated, "get": raw_pod()}
    assert [await shell.do(BIND), await shell.do(BIND)] == [["create", "get"], []], "a pause"
    assert shell.reported == (None, f"409 Conflict: {gated.message}")


async def test_binding_that_a_server_in_trouble_refuses_pauses() -> None:
    """A webhook of bindings is down: the API server answers 500, and the pod stays unbound."""
    shell = Shell()
    await shell.do(CREATE)
    down = errors.OutcomeUnknown("500 InternalError: failed calling webhook")
    shell.server.answers |= {"create": down, "get": raw_pod()}
    assert [await shell.do(BIND), await shell.do(BIND)] == [["create", "get"], []], "a pause"
    assert shell.reported == (None, "500 InternalError: failed calling webhook")


async def test_placement_of_same_name_counts_only_for_this_job() -> None:
    """A Placement with another job UID is no success."""
    shell = Shell()
    taken = errors.AlreadyExistsError(409, "AlreadyExists", message="taken")
    shell.server.answers |= {"create": taken, "get": {"spec": {"jobUID": "another"}}}
    await shell.do(WritePlacement(ENTRY))
    assert not shell.executor.placed(ENTRY.key)
    assert shell.reported == (
        None,
        "409 AlreadyExists: a-1 is still there, of another job of this name",
    )
    metadata = {"uid": "p", "namespace": "team", "name": "a-1", "resourceVersion": "7"}
    spec = {"jobUID": "a", "attempt": 1, "nodes": ["n0", "n9"]}
    shell.server.answers["get"] = {"metadata": metadata, "spec": spec}
    shell.now_s += PAUSE_S.cap_s
    await shell.do(WritePlacement(ENTRY))
    assert not shell.executor.placed(ENTRY.key)
    assert "a-1 is there with other nodes" in shell.reported[1]
    spec["nodes"] = list(ENTRY.nodes)
    shell.now_s += PAUSE_S.cap_s
    await shell.do(WritePlacement(ENTRY))
    assert shell.executor.placed(ENTRY.key)
    assert shell.placements.records["p"].nodes == ENTRY.nodes


async def test_nothing_is_kept_of_attempt_that_left_the_ledger() -> None:
    """Refusals, failures and written Placements are dropped."""
    shell = Shell()
    shell.server.answers["create"] = QUOTA
    await shell.do(CREATE)
    shell.server.answers["create"] = BUSY
    await shell.do(CreatePod(ENTRY, 1))
    shell.executor.forget_all_but([])
    assert shell.reported == (None, "")
    shell.server.answers["create"] = raw_pod()
    assert await shell.do(CreatePod(ENTRY, 1)) == ["create"]
