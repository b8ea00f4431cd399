"""Recording and alert rules for Prometheus. Each alert has a runbook in docs/runbooks/."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any

from railwright_dashboards.fleet import DEVICES, USED
from railwright_dashboards.panels import quantiles

RUNBOOKS = "docs/runbooks"
"""In the repository of this version."""


class Severity(StrEnum):
    """How soon somebody must look: now, today, or when there is time."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires once ``expr`` has had a value for ``holds``, such as ``5m``. The texts
    may have Prometheus' templates."""

    name: str
    severity: Severity
    expr: str
    holds: str
    _: KW_ONLY
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """The path of its page."""
        return f"{RUNBOOKS}/{self.name}.md"


RECORDINGS = {
    "railwright:devices_in_use:ratio": f"{USED} / {DEVICES}",
    "railwright:recovery_seconds:p95_1d": quantiles(
        "railwright_recovery_seconds", 0.95, window="1d"
    )["p95"],
}
"""Series for long times, by their names."""

ALERTS = (
    Alert(
        "RailwrightNoLeader",
        Severity.CRITICAL,
        "absent(railwright_jobs)",
        "2m",
        summary="No operator leads",
        description="No scraped operator has completed a scheduling cycle. Running jobs train on; "
        "no job starts or recovers.",
    ),
    Alert(
        "RailwrightCyclesFail",
        Severity.CRITICAL,
        "sum by (error) (increase(railwright_cycles_failed_total[10m])) > 3",
        "1m",
        summary="Scheduling cycles fail: {{ $labels.error }}",
        description="{{ $value | humanize }} cycles ended early in ten minutes. Jobs start and "
        "recover late or not at all.",
    ),
    Alert(
        "RailwrightCyclesSlow",
        Severity.WARNING,
        "histogram_quantile(0.99, sum by (le) (rate(railwright_cycle_seconds_bucket[10m]))) > 1",
        "15m",
        summary="Scheduling cycles take longer than a second",
        description="The 99th percentile is {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "RailwrightJobFault",
        Severity.WARNING,
        "sum by (stage) (increase(railwright_job_faults_total[15m])) > 0",
        "0m",
        summary="The handling of a job raised an exception in the stage {{ $labels.stage }}",
        description="The job waits with the reason InternalError or goes on as it is; other jobs "
        "are not affected.",
    ),
    Alert(
        "RailwrightInvariantViolated",
        Severity.CRITICAL,
        "sum by (invariant) (increase(railwright_invariant_violations_total[15m])) > 0",
        "0m",
        summary="Invariant {{ $labels.invariant }} is violated",
        description="A comparison of the operator's caches with fresh lists found a contradiction.",
    ),
    Alert(
        "RailwrightDoubleBooking",
        Severity.CRITICAL,
        "max(railwright_double_booked_nodes) > 0",
        "1m",
        summary="{{ $value }} nodes are double-booked",
        description="Pods of several attempts hold more than the node has. The nodes take no new "
        "pods.",
    ),
    Alert(
        "RailwrightBreakerOpen",
        Severity.CRITICAL,
        "max(railwright_breaker_open) == 1",
        "2m",
        summary="Most nodes are silent",
        description="The control plane may be cut off from the nodes. Attempts end by a silence of "
        "600 s.",
    ),
    Alert(
        "RailwrightWatchSilent",
        Severity.WARNING,
        "max by (kind) (railwright_watch_receive_age_seconds) > 180",
        "2m",
        summary="The watch of {{ $labels.kind }} receives nothing",
        description="The last message came {{ $value | humanizeDuration }} ago. Decisions may be "
        "made on an old state.",
    ),
    Alert(
        "RailwrightApiThrottled",
        Severity.WARNING,
        'sum(rate(railwright_api_retries_total{code="429"}[10m])) > 0.1',
        "10m",
        summary="The API server throttles Railwright",
        description="{{ $value | humanize }} requests a second were answered with 429. Gangs are "
        "bound late.",
    ),
    Alert(
        "RailwrightHeartbeatsRefused",
        Severity.WARNING,
        'sum by (code) (rate(railwright_heartbeat_requests_total{code!="200",code!="307"}[10m])) '
        "/ on () group_left () sum(rate(railwright_heartbeat_requests_total[10m])) > 0.05",
        "10m",
        summary="{{ $value | humanizePercentage }} of launchers' messages are answered with "
        "{{ $labels.code }}",
        description="Launchers whose messages are refused count as silent.",
    ),
    Alert(
        "RailwrightFabricStale",
        Severity.WARNING,
        "time() - max(railwright_fabric_checked_timestamp_seconds) > 300 "
        "or absent(railwright_fabric_checked_timestamp_seconds)",
        "2m",
        summary="The topology is not compared with its sources",
        description="The controllers are down, or wait for a list or a file. Jobs are placed by "
        "the last topology.",
    ),
    Alert(
        "RailwrightFabricProblems",
        Severity.INFO,
        "max(railwright_fabric_problems) > 0",
        "15m",
        summary="The topology has {{ $value }} problems",
        description="`kubectl get fabric default -o jsonpath='{.status.problems}'` names them.",
    ),
    Alert(
        "RailwrightFabricConflicts",
        Severity.INFO,
        "max(railwright_fabric_conflicts) > 0",
        "15m",
        summary="Sources of the topology contradict each other about {{ $value }} facts",
        description="The more trusted source counts. `kubectl get fabric default "
        "-o jsonpath='{.status.conflicts}'` has both sides.",
    ),
    Alert(
        "RailwrightAgentsSilent",
        Severity.WARNING,
        'max(railwright_fabric_agents{state="Silent"}) > 0',
        "5m",
        summary="{{ $value }} node agents are silent",
        description="Hardware and speed of their nodes stay as they were last reported.",
    ),
    Alert(
        "RailwrightAgentsMissing",
        Severity.INFO,
        "max(railwright_fabric_nodes) "
        "- (sum(max by (state) (railwright_fabric_agents)) or vector(0)) > 0",
        "30m",
        summary="{{ $value }} nodes have no node agent that reported",
        description="Hardware and speed of these nodes are not known, or are as before the "
        "controllers started.",
    ),
    Alert(
        "RailwrightNodeUnavailable",
        Severity.WARNING,
        'max by (node_name, state) (railwright_node_unavailable{state=~"Lost|Unready"}) == 1',
        "15m",
        summary="Node {{ $labels.node_name }} is {{ $labels.state }}",
        description="No pod is placed on it.",
    ),
    Alert(
        "RailwrightDevicesUnavailable",
        Severity.WARNING,
        "max by (resource) (railwright_devices_unavailable) "
        "/ max by (resource) (railwright_devices) > 0.2",
        "15m",
        summary="{{ $value | humanizePercentage }} of {{ $labels.resource }} are on nodes that are "
        "not available",
        description="These nodes are lost, not ready, cordoned or double-booked. Jobs wait longer.",
    ),
    Alert(
        "RailwrightMiscabledNodes",
        Severity.INFO,
        "max(railwright_fabric_miscabled_nodes) > 0",
        "15m",
        summary="{{ $value }} nodes have a miscabled rail",
        description="Traffic of that rail crosses a further switch.",
    ),
    Alert(
        "RailwrightSlowDevices",
        Severity.WARNING,
        "max(railwright_fabric_slow_devices) > 0",
        "30m",
        summary="{{ $value }} devices are slower than most of their kind",
        description="A gang is as slow as its slowest node. The scheduler places jobs elsewhere if "
        "it can.",
    ),
    Alert(
        "RailwrightJobRestarts",
        Severity.WARNING,
        "max by (job_namespace, job_name) (railwright_job_restarts_total) "
        "- min by (job_namespace, job_name) (min_over_time(railwright_job_restarts_total[1h])) > 3",
        "0m",
        summary="Job {{ $labels.job_namespace }}/{{ $labels.job_name }} restarts again and again",
        description="{{ $value | humanize }} restarts in an hour.",
    ),
    Alert(
        "RailwrightJobStuck",
        Severity.WARNING,
        "max by (job_namespace, job_name, reason) (railwright_job_waiting_since_timestamp_seconds"
        '{reason=~"BindingBacklog|LedgerFull|MappingPending|PodNamesTaken"})',
        "15m",
        summary="Job {{ $labels.job_namespace }}/{{ $labels.job_name }} waits, but not for nodes: "
        "{{ $labels.reason }}",
        description="This reason passes within seconds, unless pods or the API server are stuck.",
    ),
    Alert(
        "RailwrightJobStartsSlowly",
        Severity.WARNING,
        'max by (job_namespace, job_name) (railwright_job_phase{phase="Starting"}) == 1',
        "30m",
        summary="Job {{ $labels.job_namespace }}/{{ $labels.job_name }} does not start",
        description="It has its nodes, and not every rank has passed the start barrier.",
    ),
    Alert(
        "RailwrightCheckpointOld",
        Severity.WARNING,
        'max by (job_namespace, job_name) (railwright_job_phase{phase="Running"}) '
        "unless on (job_namespace, job_name) "
        "(time() - max by (job_namespace, job_name) "
        "(railwright_job_checkpoint_timestamp_seconds) < 3600)",
        "2h",
        summary="Job {{ $labels.job_namespace }}/{{ $labels.job_name }} has not committed a "
        "checkpoint for two hours",
        description="A failure would repeat all that it trained since.",
    ),
)


def rule_groups() -> dict[str, Any]:
    """The content of a file of rules, and of the spec of a PrometheusRule."""
    recordings = [{"record": name, "expr": expr} for name, expr in RECORDINGS.items()]
    return {
        "groups": [
            {"name": "railwright.recordings", "rules": recordings},
            {"name": "railwright.alerts", "rules": [_rule(alert) for alert in ALERTS]},
        ]
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.holds,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook": alert.runbook,
        },
    }
