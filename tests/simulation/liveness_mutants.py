"""Mutants of what is taken for dead, lost or double-booked, and of where hosts are."""

from __future__ import annotations

from simulation.planted import CONTROLLERS, SCHEDULER, Mutant

LIVENESS_MUTANTS = (
    Mutant(
        "the breaker is ignored",
        "suspected_nodes.py",
        "        return self._breaker\n",
        "        return CLOSED\n",
        "tests/unit/test_state_builder.py::test_cut_ends_no_attempt_and_dead_nodes_are_found",
    ),
    Mutant(
        "attempts on nodes that are all dead are held for ever",
        "watch/node_leases.py",
        " or now_s - self._renewing_s > HOLD_S",
        "",
        "tests/unit/test_late_kubelets.py::test_new_leader_finds_that_all_nodes_are_dead",
    ),
    Mutant(
        "a lease is stale though no other is renewed",
        "watch/node_leases.py",
        "            and self._renewal_s >= (due_s if alone else seen.since_s + SLACK_S)\n",
        "",
        "tests/unit/test_node_leases.py::test_lease_read_for_longer_is_not_stale_before_others",
    ),
    Mutant(
        "a late renewal ends a gang while launchers do not reach the operator",
        "attempt/breaker.py",
        "return len(silent) > len(responsive) and not silent.isdisjoint(renewing)",
        "return False",
        "tests/unit/test_late_kubelets.py"
        "::test_late_renewal_ends_nothing_while_launchers_are_cut_off",
        package=SCHEDULER,
    ),
    Mutant(
        "a lease that was read for comparison is evidence at once",
        "watch/node_leases.py",
        "            self._sightings.pop(name, None)\n        self._silent",
        "            pass\n        self._silent",
        "tests/unit/test_node_leases.py::test_row_of_a_silent_launcher_begins_when_it_is_silent",
    ),
    Mutant(
        "a node is lost while kubelets come back after an outage",
        "liveness.py",
        "if _is_unreported(launcher) and not self.lease_checker.has_settled:",
        "if False:",
        "tests/unit/test_liveness.py::test_node_whose_kubelet_stopped_has_time_to_come_back",
    ),
    Mutant(
        "a kubelet that says that it is not ready is silent",
        "liveness.py",
        "return unready_s if unready_s > UNREADY_S else None",
        "return unready_s",
        "tests/unit/test_liveness.py::test_kubelet_that_is_not_ready_lives_beside_silent_launcher",
    ),
    Mutant(
        "a launcher without a message is lost by one late renewal",
        "watch/node_leases.py",
        "(seen.duration_s if alone else seen.limit_s)",
        "seen.limit_s",
        "tests/unit/test_node_leases.py"
        "::test_lease_of_a_launcher_without_a_message_has_its_duration",
    ),
    Mutant(
        "a host with cables that joins is placed by its labels until agents report",
        "report/kept.py",
        "for node in found.places.keys() - joined\n",
        "for node in found.places\n",
        "tests/unit/test_published_topology.py"
        "::test_host_with_cables_that_joins_is_placed_with_them",
        package=CONTROLLERS,
    ),
    Mutant(
        "an attempt that is withdrawn is a double booking",
        "live_invariants.py",
        "for pod in seen.pods if key not in in_flight else ():",
        "for pod in seen.pods:",
        "tests/unit/test_double_booking.py::test_attempt_that_is_withdrawn_is_no_double_booking",
        package=SCHEDULER,
    ),
)
