"""Jobs that are kept out of the queue because of their spec."""

from __future__ import annotations

from fixtures import observing
from fixtures.observing import Watched
from railwright_operator.watch.job_objects import SPEC_BYTES_MAX
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model.reasons import QueueNotFound, TooLarge, Unreadable


def test_job_that_is_too_large_waits() -> None:
    seen = Watched(phase=Phase.QUEUED)
    raw = observing.raw_job(9, 2, {"phase": "Queued"})
    raw["metadata"] |= {"uid": "large", "name": "large"}
    raw["spec"]["roles"][0]["template"]["spec"]["hostname"] = "x" * SPEC_BYTES_MAX
    seen.jobs.absorb(raw)
    assert isinstance(seen.run_cycle().waits["large"], TooLarge)


def test_job_whose_new_spec_is_unreadable_waits() -> None:
    """No attempt of it starts from the spec that it had before."""
    seen = Watched(phase=Phase.QUEUED)
    raw = observing.raw_job(9, 2, {"phase": "Queued"})
    raw["metadata"] |= {"uid": "edited", "name": "edited"}
    seen.jobs.absorb(raw)
    assert seen.run_cycle().waits["edited"] == QueueNotFound("default", ())
    (container,) = raw["spec"]["roles"][0]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": "many"}}
    raw["metadata"] |= {"resourceVersion": "10", "generation": 2}
    seen.jobs.absorb(raw)
    found = seen.run_cycle().waits["edited"]
    assert isinstance(found, Unreadable)
    assert "many" in found.sentence()
