"""A job waits for its pre-run as long as that can bring something, and never longer."""

from __future__ import annotations

import pytest

from fixtures import reporting
from fixtures.ahead import LARGE, NAME, PATH, SPLIT, Ahead, large, recorded
from fixtures.reporting import Raw
from railwright_api import names
from railwright_operator import pre_runs
from railwright_operator.kube import errors
from railwright_operator.pre_runs import PreRunStatus
from railwright_scheduler import PreRunAhead


@pytest.fixture
async def site() -> Ahead:
    """A large job was applied, and its pre-run is made."""
    found = Ahead()
    found.jobs.absorb(large())
    pre_run_status = await found.run_cycle()
    assert pre_run_status.held is not None
    return found


def given_up(pre_run_status: PreRunStatus) -> str:
    """Why; the job is held until its status says so."""
    assert pre_run_status.held is not None
    assert pre_run_status.profile == ""
    assert pre_run_status.end is not None
    return pre_run_status.end.message


async def test_a_large_job_waits_for_a_small_one_of_the_same_template(site: Ahead) -> None:
    made, job = site.ahead(), large()
    metadata, spec = made["metadata"], made["spec"]
    assert metadata["labels"] == {"railwright.dev/pre-run-of": "large"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (LARGE, True)
    assert (spec["numNodes"], spec["workload"]["parallelism"]["data"]) == (2, 2)
    assert spec["workload"]["training"]["globalBatch"] == 3 * 2
    assert (spec["profiling"], spec["backoffLimit"]) == ({"steps": 3, "preRun": "Never"}, 0)
    assert spec["template"] == job["spec"]["template"]
    site.stands("Running", progress={"step": 3})
    pre_run_status = await site.run_cycle()
    assert pre_run_status.held == PreRunAhead(NAME, 2, "Running", "step 3")
    assert site.store.count("create") == 1


async def test_what_it_recorded_is_the_jobs_once_it_is_over(site: Ahead) -> None:
    site.stands("Running", profile=recorded(2))
    assert (await site.run_cycle()).profile == ""
    site.stands("Succeeded", profile=recorded(2))
    pre_run_status = await site.run_cycle()
    assert (pre_run_status.profile, pre_run_status.end) == (recorded(2), None)
    assert pre_run_status.held is not None
    site.change(status={"profile": recorded(2)})
    assert await site.run_cycle() == pre_runs.NO_PRE_RUN
    assert site.store.count("delete") == 0


@pytest.mark.parametrize(
    ("phase", "status", "words"),
    [
        ("Failed", {"message": "rank 1 failed"}, "failed: rank 1 failed"),
        ("Succeeded", {}, "ended before all of its ranks had recorded 3 steps"),
        ("Succeeded", {"profile": "{}"}, "recorded a profile that does not fit the job: Profile."),
        ("Succeeded", {"profile": recorded(1)}, "of one replica, of the job's 8: "),
    ],
)
async def test_pre_run_without_a_profile_is_given_up_and_reported(
    site: Ahead, phase: str, status: Raw, words: str
) -> None:
    site.stands(phase, **status)
    pre_run_status = await site.run_cycle()
    assert words in given_up(pre_run_status)
    assert pre_run_status.end is not None
    reported = {"of": pre_run_status.end.of, "message": pre_run_status.end.message}
    site.change(status={"preRun": reported})
    site.pre_runs = site.new()
    assert await site.run_cycle() == PreRunStatus(end=pre_run_status.end)
    # Of anything else it is tried again.
    site.change(spec=SPLIT, status={"preRun": reported})
    pre_run_status = await site.run_cycle()
    assert pre_run_status.held is not None
    assert pre_run_status.end is None


async def test_one_that_does_not_record_in_time_is_ended(site: Ahead) -> None:
    site.stands("Running")
    await site.run_cycle()
    pre_run_status = await site.run_cycle(after_s=pre_runs.RECORDS_S)
    assert pre_run_status.end is None
    pre_run_status = await site.run_cycle(after_s=1.0)
    assert "has not recorded within 25 min, and is Running" in given_up(pre_run_status)
    assert pre_run_status.end is not None
    site.change(status={"preRun": {"of": pre_run_status.end.of, "message": "as told"}})
    assert (await site.run_cycle()).held is None
    assert f"{PATH}/{NAME}" not in site.store.objects


async def test_queued_pre_run_waits_as_its_job_would(site: Ahead) -> None:
    site.stands("Queued", message="needs 2 nodes")
    pre_run_status = await site.run_cycle(after_s=10 * pre_runs.RECORDS_S)
    assert pre_run_status == PreRunStatus(PreRunAhead(NAME, 2, "Queued", "needs 2 nodes"))


async def test_deleted_pre_run_is_given_up(site: Ahead) -> None:
    await site.run_cycle()
    site.vanishes()
    assert "was deleted" in given_up(await site.run_cycle())


async def test_suspended_pre_run_is_given_up(site: Ahead) -> None:
    site.stands("Queued", suspend=True)
    assert "was suspended" in given_up(await site.run_cycle())


@pytest.mark.parametrize(
    "refusal",
    [
        errors.ForbiddenError(403, "Forbidden", message="exceeded quota"),
        errors.InvalidError(422, "Invalid", message="exceeded quota"),
    ],
)
async def test_refused_pre_run_is_given_up_with_the_servers_message(
    refusal: errors.ApiError,
) -> None:
    site = Ahead()
    site.store.refusals["create", PATH] = refusal
    site.jobs.absorb(large())
    await site.run_cycle()
    assert f"the pre-run {NAME} was refused: exceeded quota" in given_up(await site.run_cycle())
    assert site.store.count("create") == 1
    # Who takes the wish back, and has it again, tries again.
    site.change(spec={"profiling": {"preRun": "Never"}})
    assert await site.run_cycle() == pre_runs.NO_PRE_RUN
    site.change()
    assert (await site.run_cycle()).end is None
    assert site.store.count("create") == 2


async def test_unreachable_server_is_retried_for_a_limited_time() -> None:
    site = Ahead()
    site.store.refusals["create", PATH] = errors.Unreachable("no route")
    site.jobs.absorb(large())
    assert (await site.run_cycle()).end is None
    assert (await site.run_cycle()).end is None
    assert site.store.count("create") == 1
    assert (await site.run_cycle(after_s=60.0)).end is None
    assert site.store.count("create") == 2
    assert "could not be made in 120 s: no route" in given_up(await site.run_cycle(after_s=61.0))


async def test_foreign_job_of_that_name_is_no_pre_run() -> None:
    site = Ahead()
    stranger = reporting.raw_job(NAME, status={"phase": "Succeeded", "profile": recorded(2)})
    stranger["metadata"]["labels"] = {"railwright.dev/pre-run-of": "large"}
    for label in ({"railwright.dev/pre-run-of": "large"}, {}):
        site = Ahead()
        stranger["metadata"]["labels"] = label
        site.jobs.absorb(site.store.put(f"{PATH}/{NAME}", stranger))
        site.jobs.absorb(large())
        assert (await site.run_cycle()).profile == ""
    assert "another job has its name" in given_up(await site.run_cycle())


async def test_job_with_a_forged_owner_is_no_pre_run() -> None:
    """Nobody but the operator can make one with its label."""
    site = Ahead()
    owner = {"uid": LARGE, "controller": True}
    stranger = reporting.raw_job(NAME, metadata={"ownerReferences": [owner]})
    site.jobs.absorb(site.store.put(f"{PATH}/{NAME}", stranger))
    site.jobs.absorb(large())
    await site.run_cycle()
    assert "another job has its name" in given_up(await site.run_cycle())


async def test_that_of_a_job_of_the_same_name_before_is_waited_for() -> None:
    site = Ahead()
    owner = {"uid": "before", "controller": True}
    metadata = {"labels": {names.LABEL_PRE_RUN_OF: "large"}, "ownerReferences": [owner]}
    site.store.put(f"{PATH}/{NAME}", reporting.raw_job(NAME, metadata=metadata))
    site.jobs.absorb(large())
    await site.run_cycle()
    del site.store.objects[f"{PATH}/{NAME}"]
    await site.run_cycle(after_s=60.0)
    pre_run_status = await site.run_cycle()
    assert (pre_run_status.end, site.ahead()["metadata"]["ownerReferences"][0]["uid"]) == (
        None,
        LARGE,
    )


async def test_undeletable_pre_run_does_not_block_its_job(site: Ahead) -> None:
    uid = site.ahead()["metadata"]["uid"]
    site.store.refusals["delete", f"{PATH}/{NAME}"] = errors.ForbiddenError(
        403, "Forbidden", message="a policy denies it"
    )
    site.change(spec=SPLIT)
    for _ in range(4):
        pre_run_status = await site.run_cycle(after_s=60.0)
    assert site.jobs.get(uid) is not None
    assert "could not be made anew in 120 s: " in given_up(pre_run_status)
    assert "a policy denies it" in given_up(pre_run_status)


async def test_another_leader_goes_on_with_what_is_there(site: Ahead) -> None:
    site.stands("Running", progress={"step": 1})
    site.pre_runs = site.new()
    pre_run_status = await site.run_cycle()
    assert pre_run_status.held is not None
    assert pre_run_status.held.phase == "Running"
    assert site.store.count("create") == 1
    # One that was made, and whose answer nobody heard.
    site.jobs.discard(site.ahead()["metadata"]["uid"])
    site.ahead()["metadata"]["uid"] = "uid-unheard"
    site.pre_runs = site.new()
    await site.run_cycle()
    assert site.jobs.get("uid-unheard") is not None


@pytest.mark.parametrize(
    "spec",
    [{"suspend": True}, {"profiling": {"preRun": "Never"}}],
    ids=str,
)
async def test_a_job_that_wants_none_any_more_ends_it(site: Ahead, spec: Raw) -> None:
    site.stands("Running")
    await site.run_cycle()
    site.change(spec=spec)
    assert (await site.run_cycle()).held is None
    assert not site.store.objects
    # It was we who did: when it is wanted again, another is made.
    for cached in site.jobs.all():
        if cached.uid != LARGE:
            site.jobs.discard(cached.uid)
    site.change()
    await site.run_cycle()
    pre_run_status = await site.run_cycle()
    assert pre_run_status.end is None
    assert pre_run_status.held is not None
    assert f"{PATH}/{NAME}" in site.store.objects


async def test_another_parallelism_makes_another(site: Ahead) -> None:
    before = site.ahead()["metadata"]["uid"]
    site.stands("Succeeded", profile=recorded(2))
    site.change(spec=SPLIT)
    assert (await site.run_cycle()).profile == ""
    site.jobs.discard(before)
    pre_run_status = await site.run_cycle()
    assert pre_run_status.held == PreRunAhead(NAME, 4, "", "")
    assert site.ahead()["spec"]["numNodes"] == 4


@pytest.mark.parametrize(
    "parts",
    [
        {"data": 2},
        {"status": {"profile": recorded(2)}},
        {"status": {"phase": "Succeeded", "attempt": 1, "endedAttempt": 1}},
        {"spec": {"profiling": {"preRun": "Never"}}},
    ],
    ids=str,
)
async def test_a_job_that_needs_none_is_not_kept(parts: Raw) -> None:
    site = Ahead()
    site.jobs.absorb(large(**parts))
    assert await site.run_cycle() == pre_runs.NO_PRE_RUN
    assert not site.store.requests


@pytest.mark.parametrize(
    ("cause", "is_held"),
    [("NodeLost", False), ("Remapped", False), ("RankFailed", False), ("Suspended", True)],
)
async def test_a_job_that_ran_goes_on_at_once_unless_it_was_suspended(
    cause: str, *, is_held: bool
) -> None:
    site = Ahead()
    status = {
        "phase": "Queued",
        "attempt": 1,
        "endedAttempt": 1,
        "lastTermination": {"attempt": 1, "cause": cause, "message": "as told"},
    }
    site.jobs.absorb(large(status=status))
    assert ((await site.run_cycle()).held is not None) is is_held
    # Whatever ended it: who suspends it then has time.
    site.change(status=status, spec={"suspend": True})
    assert (await site.run_cycle()).held is None
    site.change(status=status)
    assert (await site.run_cycle()).held is not None


async def test_what_is_too_large_to_be_recorded_is_not_tried() -> None:
    site = Ahead()
    workload = large()["spec"]["workload"]
    workload["parallelism"] = {"tensor": 4, "context": 64, "data": 4}
    spec = {"workload": workload, "numNodes": 128, "numProcPerNode": 8}
    site.jobs.absorb(large(spec=spec))
    assert "would have 512 ranks: at most 256 can be recorded" in given_up(await site.run_cycle())
    assert not site.store.requests


async def test_unreadable_job_keeps_its_pre_run_status(site: Ahead) -> None:
    before = await site.run_cycle()
    site.change(spec={"numNodes": 3, "workload": None})
    assert site.jobs.why_unreadable(LARGE) is not None
    assert await site.run_cycle() == before
    assert site.store.count("delete") == 0


def test_pre_runs_of_long_job_names_have_unique_names() -> None:
    longest = names.JOB_NAME_LENGTH_MAX
    assert names.pre_run_name("train") == "train-pre-run"
    reported = [names.pre_run_name("a" * (longest - 1) + end) for end in "abc"]
    assert len({*reported}) == 3
    assert {len(name) for name in reported} == {longest}
