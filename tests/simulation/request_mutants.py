"""Mutants of how processes pace and bound requests, to the mapper and to the API server, and of who
reads their metrics."""

from __future__ import annotations

from simulation.planted import KUBE, PROCESS, Mutant

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
        "a pod that cannot be bound is tried without a pause",
        "write/executor.py",
        "if found.uid == uid and not (found.node or found.deleting):",
        "if False:",
        "tests/unit/test_executor.py::test_binding_that_conflicts_with_the_pod_itself_hinders",
    ),
    Mutant(
        "a default of a later schema changes a job",
        "watch/spec_hash.py",
        "exclude_defaults=True",
        "exclude_unset=True",
        "tests/unit/test_jobs_store.py::test_spec_hash_ignores_what_nobody_wrote",
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
    Mutant(
        "a token is reviewed at each request",
        "access.py",
        "if answer is not None and now_s < answer.until_s:",
        "if False:",
        "tests/unit/test_access.py::test_answer_is_used_for_its_time",
        package=KUBE,
    ),
    Mutant(
        "a token is reviewed once for each of several requests",
        "access.py",
        "review = self._in_flight.get(digest)",
        "review = None",
        "tests/unit/test_access.py::test_requests_with_one_token_share_a_review",
        package=KUBE,
    ),
    Mutant(
        "strangers have any number of reviews",
        "access.py",
        "if allowed is None and not self._may_review_unknown(token, now_s):",
        "if False:",
        "tests/unit/test_access.py::test_strangers_have_few_reviews",
        package=KUBE,
    ),
    Mutant(
        "one account takes all reviews",
        "access.py",
        "if sum(each == sender for _, each in unknown) >= OF_ONE_MAX:",
        "if len(unknown) >= UNKNOWN_MAX:",
        "tests/unit/test_access.py::test_no_account_takes_the_reviews_of_another",
        package=KUBE,
    ),
    Mutant(
        "a token reads metrics as long as no API server answers",
        "access.py",
        "if before is None or now_s - before.answered_s >= OUTAGE_S:",
        "if before is None:",
        "tests/unit/test_access.py::test_reader_stays_one_through_an_outage",
        package=KUBE,
    ),
    Mutant(
        "strangers end the scrape of a reader",
        "metrics_server.py",
        "self._admit(request)",
        "pass",
        "tests/integration/test_endpoints.py::test_strangers_end_no_scrape",
        package=PROCESS,
    ),
    Mutant(
        "metrics need no right",
        "metrics_server.py",
        "if status == HTTPStatus.OK:",
        "if status != HTTPStatus.UNAUTHORIZED:",
        "tests/integration/test_endpoints.py::test_metrics_are_for_tokens_with_the_right",
        package=PROCESS,
    ),
)
