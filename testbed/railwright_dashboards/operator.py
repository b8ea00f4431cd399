"""Operator: are Railwright's own processes well?"""

from __future__ import annotations

from railwright_dashboards.panels import Dashboard, Unit, lines, number, quantiles, table

DASHBOARD = Dashboard(
    "railwright-operator",
    "Railwright / Operator",
    "Are Railwright's own processes well?",
    (
        number(
            "Processes scraped",
            "count(railwright_build_info)",
            "Replicas of the operator and of the controllers that are scraped.",
        ),
        number(
            "Failed cycles in an hour",
            "sum(increase(railwright_cycles_failed_total[1h])) or vector(0)",
            "Scheduling cycles that ended early. The log has the reason.",
            alarm=1,
        ),
        number(
            "Faults of single jobs in an hour",
            "sum(increase(railwright_job_faults_total[1h])) or vector(0)",
            "Exceptions in the handling of one job. Other jobs go on.",
            alarm=1,
        ),
        number(
            "Violated invariants in an hour",
            "sum(increase(railwright_invariant_violations_total[1h])) or vector(0)",
            "A comparison of the caches with fresh lists found a contradiction.",
            alarm=1,
        ),
        lines(
            "Scheduling cycle",
            quantiles("railwright_cycle_seconds", 0.5, 0.99),
            "Time to build the state and to plan.",
            Unit.SECONDS,
        ),
        lines(
            "Delay of the event loop",
            quantiles("railwright_loop_lag_seconds", 0.5, 0.99),
            "Every heartbeat and every request waits this long.",
            Unit.SECONDS,
        ),
        lines(
            "Requests to the API server",
            {
                "{{verb}} {{code}}": "sum by (verb, code) "
                "(rate(railwright_api_requests_total[$__rate_interval])) > 0"
            },
            "By verb, and by status or failure.",
            Unit.REQUESTS,
        ),
        lines(
            "Time of a request",
            quantiles("railwright_api_request_seconds", 0.99, by="verb"),
            "Without retries.",
            Unit.SECONDS,
        ),
        lines(
            "Requests sent again",
            {
                "{{verb}} {{code}}": "sum by (verb, code) "
                "(rate(railwright_api_retries_total[$__rate_interval])) > 0"
            },
            "429: the API server throttles. 401: the token had expired.",
            Unit.REQUESTS,
            may_be_empty=True,
        ),
        lines(
            "Time since a watch received anything",
            {"{{kind}}": "max by (kind) (railwright_watch_receive_age_seconds)"},
            "An event, a bookmark or the end of a stream. A minute or two is usual for kinds "
            "that rarely change; an alert fires after three.",
            Unit.SECONDS,
        ),
        lines(
            "Messages of launchers and node agents",
            {
                "launchers {{code}}": "sum by (code) "
                "(rate(railwright_heartbeat_requests_total[$__rate_interval])) > 0",
                "agents {{code}}": "sum by (code) "
                "(rate(railwright_agent_requests_total[$__rate_interval])) > 0",
            },
            "By HTTP status.",
            Unit.REQUESTS,
            may_be_empty=True,
        ),
        lines(
            "Lists and watches that failed, per hour",
            {
                "{{kind}} {{cause}}": "sum by (kind, cause) "
                "(increase(railwright_watch_errors_total[1h])) > 0"
            },
            "They start again by themselves.",
            may_be_empty=True,
        ),
        lines(
            "Memory",
            {
                "{{instance}}": "process_resident_memory_bytes "
                "and on (instance) railwright_build_info"
            },
            "Resident memory of each process.",
            Unit.BYTES,
        ),
        lines(
            "Cores in use",
            {
                "{{instance}}": "rate(process_cpu_seconds_total[$__rate_interval]) "
                "and on (instance) railwright_build_info"
            },
            "Cores that each process uses.",
        ),
        lines(
            "Objects in caches",
            {"{{kind}}": "max by (kind) (railwright_watch_records)"},
            "Objects that the watches hold.",
        ),
        table(
            "Leaders",
            "max by (deployment, instance) (railwright_leader)",
            "1 for the replica of each Deployment that leads, 0 for a standby.",
            column="Leads",
        ),
    ),
)
