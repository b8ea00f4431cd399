"""Queue: which jobs wait, for what, and how long?"""

from __future__ import annotations

from railwright_dashboards.fleet import FREE
from railwright_dashboards.panels import (
    Dashboard,
    Unit,
    areas,
    lines,
    number,
    quantiles,
    table,
)

DASHBOARD = Dashboard(
    "railwright-queue",
    "Railwright / Queue",
    "Which jobs wait, for what, and how long?",
    (
        number(
            "Waiting jobs",
            'max(railwright_jobs{phase="Queued"})',
            "Jobs in the phase Queued.",
        ),
        number(
            "Running jobs",
            'max(railwright_jobs{phase="Running"})',
            "Jobs whose ranks all passed the start barrier.",
        ),
        number(
            "Free devices",
            FREE,
            "Devices that no pod holds, on available nodes.",
            legend="{{resource}}",
        ),
        number(
            "Gangs being bound or deleted",
            "max(railwright_attempts_in_flight)",
            "Attempts whose pods are being created, bound or deleted: they are in the ledger.",
        ),
        areas(
            "Waiting jobs by reason",
            "max by (reason) (railwright_jobs_waiting) > 0",
            "{{reason}}",
            "Why jobs wait. The glossary explains each reason and what to do about it.",
            may_be_empty=True,
        ),
        table(
            "Jobs that wait",
            "sort_desc(time() - max by (job_namespace, job_name, reason) "
            "(railwright_job_waiting_since_timestamp_seconds))",
            "Why each job waits, and for how long, the longest first. `kubectl describe tj` has "
            "the numbers. Jobs that run have series first; railwright_jobs_without_series counts "
            "those that are left out.",
            Unit.DURATION,
            column="Waits for",
            may_be_empty=True,
        ),
        areas(
            "Jobs by phase",
            "max by (phase) (railwright_jobs) > 0",
            "{{phase}}",
            "All TrainingJobs.",
            may_be_empty=True,
        ),
        lines(
            "Devices that waiting jobs request, and free ones",
            {
                "requested: {{resource}}": "max by (resource) (railwright_devices_waiting_for)",
                "free: {{resource}}": FREE,
            },
            "A job waits in spite of free devices if they are not all together, or not where it "
            "may run.",
            may_be_empty=True,
        ),
        lines(
            "Wait of jobs that got nodes",
            quantiles("railwright_queue_wait_seconds", 0.5, 0.95, window="1h"),
            "Time that jobs had waited when they got nodes, in the last hour. Jobs that still wait "
            "do not count.",
            Unit.SECONDS,
        ),
        lines(
            "Start of a gang",
            quantiles("railwright_start_seconds", 0.5, 0.95, window="1h"),
            "Time from the choice of nodes until every rank passed the start barrier. Most of it "
            "is the pull of images.",
            Unit.SECONDS,
        ),
        lines(
            "Decisions, per minute",
            {
                "{{outcome}}": "sum by (outcome) "
                "(rate(railwright_decisions_total[$__rate_interval])) * 60 > 0"
            },
            "Jobs that were admitted, and jobs whose reason to wait changed.",
            may_be_empty=True,
        ),
        lines(
            "Binding of a gang",
            quantiles("railwright_gang_bind_seconds", 0.5, 0.95, window="1h"),
            "Time from the entry of an attempt in the ledger until all of its pods were bound.",
            Unit.SECONDS,
        ),
        lines(
            "Mappings of ranks, per minute",
            {
                "{{outcome}}": "sum by (outcome) "
                "(rate(railwright_mappings_total[$__rate_interval])) * 60 > 0"
            },
            "Orders of ranks that were computed. All but Mapped start in the order of the network.",
            may_be_empty=True,
        ),
        lines(
            "Time of a mapping",
            quantiles("railwright_mapping_seconds", 0.5, 0.95, window="1h"),
            "A gang waits two seconds for its own at most.",
            Unit.SECONDS,
            may_be_empty=True,
        ),
    ),
)
