"""Prometheus series of the nodes of jobs, with the state of each node."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from fixtures import attempts, scraped_processes, scraping
from fixtures.jobs import node
from railwright_operator.report import fleet_metrics
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model.snapshot import Unavailable
from railwright_scheduler.plan import Plan

SERIES = "railwright_job_node"


def job_nodes(registry: CollectorRegistry) -> set[tuple[str, str, str]]:
    """The job, the node and its state of each series."""
    found = (dict(labels) for name, labels in scraping.scraped(registry) if name == SERIES)
    return {(each["job_name"], each["node_name"], each["state"]) for each in found}


def test_nodes_of_live_attempts_have_state() -> None:
    """An unready node is more than a silent launcher. Two pods on a node are one series."""
    registry = CollectorRegistry()
    metrics = FleetMetrics(registry)
    assert job_nodes(registry) == set()
    running = replace(attempts.RUNNING, nodes=("n0", "n0", "n1", "n2", "gone"))
    records = {"a": running, "b": attempts.RUNNING, "waits": JobRecord()}
    jobs = [attempts.seen(name=name) for name in (*records, "without-record")]
    nodes = (node("n0"), node("n1", unavailable=Unavailable.UNREADY), node("n2"))
    plan = Plan(Ledger(1, "i", "me"), (), records, {}, {"a": Ongoing(suspected=(2, 3))})
    metrics.record(attempts.world_of(*jobs, nodes=nodes), plan)
    assert job_nodes(registry) == {
        ("a", "n0", "Available"),
        ("a", "n1", "Unready"),
        ("a", "n2", "LauncherSilent"),
        ("a", "gone", "Missing"),
        ("b", "n0", "Available"),
        ("b", "n1", "Unready"),
    }
    metrics.record(attempts.world_of(nodes=nodes), replace(plan, records={}))
    assert job_nodes(registry) == set()


def test_number_of_job_nodes_is_bounded() -> None:
    registry = scraped_processes.crowded(0)
    assert len(job_nodes(registry)) == fleet_metrics.JOB_NODES_MAX
