"""Mutants of how the operator paces and bounds requests, to its mapper and to the API server."""

from __future__ import annotations

from simulation.planted import KUBE, Mutant

REQUEST_MUTANTS = (
    Mutant(
        "no cycle begins when a mapping is late",
        "mapping_requests.py",
        "asyncio.get_running_loop().call_later(WAIT_S, self.wake)",
        "pass",
        "tests/unit/test_mapping_requests.py::test_a_cycle_begins_when_a_mapping_is_late",
        raises="TimeoutError",
    ),
    Mutant(
        "another request of a job begins its two seconds again",
        "mapping_requests.py",
        "self.clock() if held is None else held.since_s",
        "self.clock()",
        "tests/unit/test_mapping_requests.py::test_another_request_of_the_job_is_as_old",
    ),
    Mutant(
        "a second answer counts for the next request",
        "mapper_process.py",
        "if reply.number != self._requests:",
        "if False:",
        "tests/unit/test_mapper_answers.py"
        "::test_a_second_answer_to_one_request_is_none_to_the_next",
    ),
    Mutant(
        "events in flight have no bound",
        "report/events.py",
        "if len(in_flight) == POSTS_MAX:",
        "if False:",
        "tests/unit/test_events.py::test_slow_namespaces_have_few_events_in_flight",
    ),
    Mutant(
        "a profile that cannot be stored is tried without a pause",
        "report/profile_writes.py",
        "if document and self._writes.is_due(cached.uid):",
        "if document:",
        "tests/unit/test_profile_writes.py::test_failing_profile_writes_delay_no_commit",
    ),
    Mutant(
        "an object that cannot be written is tried without a pause",
        "object_writes.py",
        "return self._pauses.over(key)",
        "return True",
        "tests/unit/test_node_healths.py::test_refused_write_is_tried_again_after_a_pause",
        package=KUBE,
    ),
)
