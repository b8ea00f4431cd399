"""Mutants of parts of the scheduler that the simulator hardly reaches, as few jobs wait there."""

from __future__ import annotations

from simulation.planted import SCHEDULER, ShellMutant

SCHEDULER_MUTANTS = (
    ShellMutant(
        "each cycle evaluates the same front of the queue",
        "policy/queue_window.py",
        "        if self._start is not None and position < self._start:\n",
        "        if self._start is not None and position > self._start:\n",
        "tests/property/test_queue_window.py::test_every_job_is_evaluated_within_a_round",
        package=SCHEDULER,
    ),
    ShellMutant(
        "the front of the queue is evaluated once in a round",
        "policy/queue_window.py",
        "        if self._is_front:\n            return True\n",
        "",
        "tests/property/test_queue_window.py::test_window_goes_on_where_it_stopped",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a round of the queue ends where the queue does",
        "policy/queue_window.py",
        "        if self._end is not None and position > self._end:\n",
        "        if False:\n",
        "tests/property/test_queue_window.py::test_jobs_that_come_meanwhile_do_not_lengthen_a_round",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a gang that waits for the API server is overtaken",
        "policy/decide.py",
        "            self.window.block(order.position(job))\n",
        "            pass\n",
        "tests/property/test_queue_window.py::test_gang_that_waits_for_the_api_server_is_overtaken_by_none",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a job that was moved keeps nodes while it runs again",
        "pending.py",
        "    if not entries or entries[-1].attempt < seen.record.attempt:\n",
        "    if not entries:\n",
        "tests/unit/test_migration.py::test_moved_job_that_ran_again_reserves_nothing",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a job is assessed twice for one topology",
        "migration.py",
        "        seen.topology_hash != topology_hash\n        and topology_hash",
        "        topology_hash",
        "tests/unit/test_migration.py::test_job_that_stays_is_evaluated_once",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a job that is not evaluated loses its reservation",
        "policy/reservation.py",
        "            self._keep(job, position=len(self.waiting))\n",
        "            pass\n",
        "tests/property/test_queue_window.py::test_job_not_evaluated_keeps_reservation_and_reason",
        package=SCHEDULER,
    ),
    ShellMutant(
        "jobs behind take what a job that is not evaluated has reserved",
        "policy/reservation.py",
        "        if pairs:\n",
        "        if pairs and not pairs:\n",
        "tests/property/test_queue_window.py::test_job_not_evaluated_keeps_reservation_and_reason",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a gang waits for its mapping for ever",
        "policy/mappings.py",
        "        return Unmapped.LATE if before.age_s >= WAIT_S else None\n",
        "        return None\n",
        "tests/unit/test_mappings.py::test_after_two_seconds_it_starts_in_the_networks_order",
        package=SCHEDULER,
        raises="ValueError",
    ),
    ShellMutant(
        "a gang starts on nodes that were mapped in other racks",
        "policy/gang_placement.py",
        "requested.is_of(candidate.job) and requested.stand(self._nodes)",
        "requested.is_of(candidate.job)",
        "tests/unit/test_mappings.py::test_a_mapping_for_other_racks_or_roles_is_not_used",
        package=SCHEDULER,
    ),
    ShellMutant(
        "a job that is not evaluated loses its mapping",
        "policy/scheduling_queue.py",
        "        self._reservations.keep(job, reason)\n        self._mappings.keep(job.uid)\n",
        "        self._reservations.keep(job, reason)\n",
        "tests/unit/test_mappings.py::test_job_that_is_not_evaluated_keeps_its_request",
        package=SCHEDULER,
        raises="KeyError",
    ),
)
