"""The product with one thing taken away at a time: a named test must fail then.

These are mutants that simulated runs do not reach, or rarely; ``hunts`` has the others. A mutant
replaces text in one file of a package. It is planted in a copy of the package that comes first on
the path, for the test and for every operator process that the test starts, so the product has no
hook for it. Its test must pass with an unchanged copy planted the same way. With the mutant an
assertion of the test must fail: a test that cannot be collected, or that ends with an exception
that the mutant does not state, shows nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulation.liveness_mutants import LIVENESS_MUTANTS
from simulation.planted import (
    CONTROLLERS,
    CONVERSION,
    KUBE,
    OPERATOR,
    PROCESS,
    SCHEDULER,
    Mutant,
    PlantError,
)
from simulation.request_mutants import REQUEST_MUTANTS
from simulation.scheduler_mutants import SCHEDULER_MUTANTS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    CONTROLLERS: "operator",
    CONVERSION: "operator",
    KUBE: "operator",
    OPERATOR: "operator",
    PROCESS: "operator",
    SCHEDULER: "scheduler",
}
DEADLINE_S = 600.0
PASSED, FAILED = 0, 1
"""What pytest ends with; anything else means that it could not run the test."""

END = re.compile(r"^(tests/)?\S+\.py:\d+: (\w+)$", re.MULTILINE)
"""Where a failed test ended and with which exception: the last line of a traceback of pytest."""

ASSERTIONS = frozenset({"AssertionError", "Failed"})
"""Of the test, not of the product: a failed ``assert`` and what ``pytest.raises`` ends with."""


TAKE_OVER = "            await lifecycle.persist(self.cycle.take_over, self.runtime.rng())\n"
LISTS = """\
            for informer in self.informers.leading:
                tasks.create_task(informer.run())
"""
WAITS = """\
            for informer in (*self.informers.leading, *self.informers.warm):
                await informer.wait_synced()
"""

TESTED_MUTANTS = (
    Mutant(
        "a binding does not name the pod's UID",
        "bodies.py",
        '"metadata": {"name": name, "uid": uid},',
        '"metadata": {"name": name},',
        "tests/unit/test_executor.py::test_binding_names_the_uid_of_its_pod",
        package=KUBE,
    ),
    Mutant(
        "a cycle that stopped in the queue wakes no other",
        "cycle.py",
        "if plan.queue_round is not None and not plan.queue_round.is_blocked:",
        "if False:",
        "tests/unit/test_cycle.py::test_cycle_that_stopped_in_the_queue_wakes_the_next",
    ),
    Mutant(
        "a deletion does not name the pod's UID",
        "bodies.py",
        '        "preconditions": {"uid": uid},\n',
        "",
        "tests/unit/test_executor_deletions.py::test_deletion_names_the_uid_of_its_pod",
        package=KUBE,
    ),
    Mutant(
        "pods are listed before the take-over",
        "wiring.py",
        TAKE_OVER + LISTS + WAITS,
        LISTS + WAITS + TAKE_OVER,
        "tests/unit/test_take_over.py::test_pods_and_jobs_are_listed_after_the_take_over",
    ),
    Mutant(
        "pods are kept current by a standby",
        "informers.py",
        "return self.nodes, self.health_objects, self.fabrics",
        "return self.nodes, self.health_objects, self.fabrics, self.pods",
        "tests/unit/test_take_over.py::test_pods_and_jobs_are_listed_after_the_take_over",
    ),
    Mutant(
        "the first jobs of an installation are placed without a topology",
        "wiring.py",
        "await self.informers.interconnect.wait_first(FIRST_TOPOLOGY_S)",
        "pass",
        "tests/unit/test_take_over.py::test_pods_and_jobs_are_listed_after_the_take_over",
    ),
    Mutant(
        "a new leader replaces the topology before agents reported",
        "report/fabric_reporter.py",
        "if held is not None and found.fabric.networks and not is_caught_up:",
        "if False:",
        "tests/unit/test_published_topology.py"
        "::test_new_leader_keeps_topology_that_agents_take_part_in",
        package=CONTROLLERS,
    ),
    Mutant(
        "a report counts before it is in the fabric",
        "report/node_healths.py",
        "if node.name not in found.reported:",
        "if not self.discovery.agents().reporting:",
        "tests/unit/test_node_healths.py::test_report_counts_once_it_is_in_the_fabric",
        package=CONTROLLERS,
    ),
    Mutant(
        "facts of an earlier node of the name are written",
        "report/node_healths.py",
        "if found.node_uids.get(node.name) != node.uid:",
        "if False:",
        "tests/unit/test_node_healths.py::test_health_of_a_replaced_node_is_left_to_its_deletion",
        package=CONTROLLERS,
    ),
    Mutant(
        "the health of an earlier node of the name counts",
        "machines.py",
        "if health is not None and health.node_uid != record.uid:",
        "if False:",
        "tests/unit/test_state_builder.py"
        "::test_health_of_an_earlier_node_of_the_name_does_not_count",
    ),
    Mutant(
        "no confirm before acting on what was planned",
        "cycle.py",
        "elif plan.confirms or self.clock()",
        "elif self.clock()",
        "tests/unit/test_cycle.py::test_deposed_leader_binds_nothing",
    ),
    Mutant(
        "no confirm by a leader with nothing to write",
        "cycle.py",
        "elif plan.confirms or self.clock() - self._confirmed_s >= CONFIRM_INTERVAL_S:",
        "elif plan.confirms:",
        "tests/unit/test_cycle.py::test_leader_with_nothing_to_do_confirms_its_ledger",
    ),
    Mutant(
        "a confirm reads nothing",
        "write/ledger.py",
        "if not await self._is_there(self.ledger):",
        "if not self.ledger.epoch:",
        "tests/unit/test_ledger_store.py::test_a_leader_that_was_not_replaced_finds_its_own_ledger",
    ),
    Mutant(
        "the incarnation is not compared",
        "write/ledger.py",
        "ours = (held.incarnation, held.holder, held.epoch)",
        "ours = (there.incarnation, held.holder, held.epoch)",
        "tests/unit/test_ledger_store.py::test_ledger_of_another_incarnation_deposes_its_leader",
        raises="OutcomeUnknown",
    ),
    Mutant(
        "a deleted ledger is made again by its writer",
        "write/ledger.py",
        '                raise DeposedError("the ledger was deleted") from error\n',
        '                self._version = ""\n'
        "                self._adopt(await self._make())\n"
        "                continue\n",
        "tests/unit/test_ledger_store.py::test_write_to_a_deleted_ledger_deposes_its_leader",
    ),
    Mutant(
        "a deleted ledger is not noticed by a confirm",
        "write/ledger.py",
        '            raise DeposedError("the ledger is gone: it was deleted") from error\n',
        "            return True\n",
        "tests/unit/test_ledger_store.py::test_leader_without_writes_finds_its_ledger_deleted",
    ),
    Mutant(
        "pods are never listed again",
        "reflector.py",
        "if version is not None and self.clock() < self._resync_s:",
        "if version is not None:",
        "tests/unit/test_reflector.py::test_event_missing_from_stream_is_found_by_next_list",
        package=KUBE,
    ),
    Mutant(
        "step reports are dropped as they arrive",
        "heartbeats/sessions.py",
        "steps=message.steps or before.steps,",
        "steps=before.steps,",
        "tests/unit/test_reported_steps.py::test_stalled_steps_end_the_attempt",
    ),
    Mutant(
        "a launcher speaks for another pod of its job",
        "heartbeats/server.py",
        "if bearer.pod_uid != lives:",
        "if lives is None:",
        "tests/unit/test_connections.py::test_token_of_another_rank_is_refused",
    ),
    Mutant(
        "the token of a pod that is gone stays good",
        "tokens.py",
        "if node is None:",
        "if not pod_uid:",
        "tests/unit/test_tokens.py::test_token_of_deleted_pod_is_refused_at_once",
        package=KUBE,
    ),
    Mutant(
        "a start is charged for time without reception",
        "state_builder.py",
        "self._reception_ages = Ages(self.reception_clock)",
        "self._reception_ages = Ages(self.clock)",
        "tests/unit/test_state_builder.py::test_time_without_hearing_is_not_counted_against_a_start",
    ),
    Mutant(
        "a missed message does not stop the clock of silence",
        "heartbeats/reception.py",
        "        self._deaf_until_s = self._ticked_s + MISSED_S\n",
        "",
        "tests/unit/test_reception.py::test_missed_message_stops_the_clock",
    ),
    Mutant(
        "time in which the loop stood still is silence",
        "heartbeats/reception.py",
        "min(now_s - self._ticked_s, self._gap_s)",
        "(now_s - self._ticked_s)",
        "tests/unit/test_reception.py::test_blocked_loop_counts_as_one_gap",
    ),
    Mutant(
        "the watchdog does not end the process",
        "watchdog.py",
        "        self.end(EXIT_CODE)\n",
        "",
        "tests/unit/test_watchdog.py::test_hang_marks_the_job_and_ends_the_process",
    ),
    Mutant(
        "the watchdog does not watch the planning",
        "cycle.py",
        """\
        with self.watchdog.watch(isolation):
            state = await""",
        """\
        if True:
            state = await""",
        "tests/unit/test_cycle.py::test_watchdog_watches_the_whole_plan",
    ),
    Mutant(
        "specs of any size are held",
        "watch/job_objects.py",
        "if len(plain) <= SPEC_BYTES_MAX:",
        "if plain:",
        "tests/unit/test_large_jobs.py"
        "::test_a_spec_above_the_bound_is_held_as_what_accounts_for_it",
    ),
    Mutant(
        "a job that is too large is admitted",
        "state_builder.py",
        "held=cached.too_large\n            or ",
        "held=",
        "tests/unit/test_held_jobs.py::test_job_that_is_too_large_waits",
    ),
    Mutant(
        "a job that cannot be observed stops the cycle",
        "state_builder.py",
        "isolation.run(Stage.OBSERVATION, cached.uid, build_job, otherwise=None)",
        "build_job()",
        "tests/unit/test_state_builder.py::test_job_that_cannot_be_observed_stops_no_other",
    ),
    Mutant(
        "a status that cannot be made stops the others",
        "report/reporter.py",
        """\
            except Exception:
                self.faults""",
        """\
            except ZeroDivisionError:
                self.faults""",
        "tests/unit/test_reporter.py::test_failure_of_one_status_does_not_affect_others",
        raises="ValueError",
    ),
    Mutant(
        "an object that cannot be parsed stops its watch",
        "reflector.py",
        'except Exception as error:\n            logger.exception("object',
        'except ZeroDivisionError as error:\n            logger.exception("object',
        "tests/unit/test_reflector.py::test_object_that_cannot_be_parsed_stops_no_list",
        package=KUBE,
    ),
    Mutant(
        "what a fresh list shows is not taken in",
        "verified.py",
        "            self._put(self._records.get(record.uid), record)\n",
        "            pass\n",
        "tests/unit/test_invariants.py::test_lost_events_are_corrected",
        package=KUBE,
    ),
    Mutant(
        "a copy is judged before its watch has caught up",
        "verified.py",
        "            await self._reach(listing.version)\n",
        "",
        "tests/unit/test_invariants.py::test_events_that_come_late_are_no_violation",
        package=KUBE,
    ),
    Mutant(
        "what fresh lists find is not reported",
        "invariants.py",
        "        self.violations.labels(invariant).inc()\n",
        "",
        "tests/unit/test_invariants.py::test_unrecorded_attempt_is_reported",
    ),
    *LIVENESS_MUTANTS,
    *REQUEST_MUTANTS,
    *SCHEDULER_MUTANTS,
)


@contextmanager
def planted_copy(mutant: Mutant | None) -> Iterator[Path]:
    """A folder with the packages in it, one of them changed by the mutant."""
    with tempfile.TemporaryDirectory(prefix="railwright-mutant-") as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        for name, around in FOLDERS.items():
            shutil.copytree(ROOT / around / name, Path(folder) / name, ignore=ignored)
        if mutant is not None:
            mutant.plant(Path(folder) / mutant.package)
        yield Path(folder)


def _tested(tests: Iterable[str], mutant: Mutant | None) -> tuple[int, str]:
    """How pytest ended with the copy first on the path, and what it printed."""
    with planted_copy(mutant) as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    return ended.returncode, ended.stdout


def survivors() -> list[str]:
    """The mutants that their tests do not catch. Raises PlantError if tests fail without any."""
    code, printed = _tested(sorted({mutant.test for mutant in TESTED_MUTANTS}), None)
    if code != PASSED:
        raise PlantError(f"tests of mutants fail without one:\n{printed}")
    return [mutant.name for mutant in TESTED_MUTANTS if not _is_caught(mutant)]


def is_assertion(printed: str, raises: str) -> bool:
    """Whether, by what pytest printed, an assertion of a test failed or this exception ended it."""
    ends = END.findall(printed)
    return any(error == raises or (place and error in ASSERTIONS) for place, error in ends)


def _is_caught(mutant: Mutant) -> bool:
    """Whether an assertion of its test fails with it; a test that ends otherwise shows nothing."""
    code, printed = _tested([mutant.test], mutant)
    caught = code == FAILED and is_assertion(printed, mutant.raises)
    found = f"caught by {mutant.test}" if caught else f"survived {mutant.test}"
    if code != PASSED and not caught:
        found = f"no assertion of {mutant.test} failed, pytest gave {code}:\n{printed}"
    print(f"{mutant.name}: {found}", file=sys.stderr, flush=True)
    return caught
