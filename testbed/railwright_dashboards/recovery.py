"""Recovery: what ends attempts, how soon is it found, and how soon do jobs train again?"""

from __future__ import annotations

from railwright_dashboards.fleet import ENDED
from railwright_dashboards.panels import (
    Dashboard,
    Unit,
    areas,
    lines,
    mean,
    number,
    quantiles,
    table,
)

DASHBOARD = Dashboard(
    "railwright-recovery",
    "Railwright / Recovery",
    "What ends attempts, how soon is it found, and how soon do jobs train again?",
    (
        number(
            "Jobs that recover now",
            'max(railwright_jobs{phase="Recovering"})',
            "Jobs whose attempt ended, and whose next one has no nodes yet. It has them within "
            "seconds if enough nodes are free.",
            alarm=1,
        ),
        number(
            "Attempts ended in a day",
            "round(sum(increase(railwright_attempts_ended_total[1d])))",
            "Attempts that were ended before they succeeded.",
            may_be_empty=True,
        ),
        number(
            "Silent nodes",
            "max(railwright_silent_nodes)",
            "Nodes of running attempts whose launcher and kubelet are silent, until their attempt "
            "is ended.",
            alarm=1,
        ),
        number(
            "Circuit breaker open",
            "max(railwright_breaker_open)",
            "1 while it is, as most nodes are silent: then silence ends no attempt.",
            alarm=1,
        ),
        areas(
            "Attempts ended in the last hour",
            ENDED,
            "{{cause}}",
            "By cause. The glossary explains each.",
            may_be_empty=True,
        ),
        lines(
            "Time to detect",
            mean("railwright_detection_seconds", by="cause", window="1h")
            | quantiles("railwright_detection_seconds", 0.95, by="cause", window="1h"),
            "From the last sign of a failed node or rank until the operator ended the attempt. The "
            "mean is exact; a quantile lies anywhere between two bounds of the histogram.",
            Unit.SECONDS,
            may_be_empty=True,
        ),
        lines(
            "Time to recover",
            mean("railwright_recovery_seconds", by="cause", window="1h")
            | quantiles("railwright_recovery_seconds", 0.95, by="cause", window="1h"),
            "From the end of an attempt until every rank of the next one passed the start barrier.",
            Unit.SECONDS,
            may_be_empty=True,
        ),
        lines(
            "Jobs that run and recover",
            {"{{phase}}": 'max by (phase) (railwright_jobs{phase=~"Running|Recovering|Starting"})'},
            "A recovering job needs nodes, a starting one pulls images and waits for its ranks.",
        ),
        table(
            "Restarts by job",
            "topk(20, max by (job_namespace, job_name) (railwright_job_restarts_total) > 0)",
            "The jobs with the most restarts.",
            column="Restarts",
            may_be_empty=True,
        ),
        table(
            "Ended attempts by job and cause",
            "topk(20, max by (job_namespace, job_name, cause) "
            "(railwright_job_attempts_ended_total))",
            "Since the leader has seen the job. What ends the attempts of one job again and again, "
            "such as RankFailed, is commonly in the job; what ends those of many is not.",
            column="Attempts",
            may_be_empty=True,
        ),
        table(
            "What ended the last attempt of each job",
            "sort(time() - topk(20, max by (job_namespace, job_name, cause, node_name) "
            "(railwright_job_last_termination_timestamp_seconds)))",
            "The newest twenty, with the node if the cause is of one. A node that is here with "
            "several jobs is to be looked at.",
            Unit.DURATION,
            column="Time since then",
            may_be_empty=True,
        ),
        table(
            "Jobs with the oldest checkpoints",
            "topk(20, time() - max by (job_namespace, job_name) "
            "(railwright_job_checkpoint_timestamp_seconds))",
            "Jobs that would repeat the most work.",
            Unit.DURATION,
            column="Age",
            may_be_empty=True,
        ),
    ),
)
