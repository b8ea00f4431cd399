"""Job: how does this job go, and what stopped it?"""

from __future__ import annotations

from railwright_dashboards.fleet import SLOW
from railwright_dashboards.panels import (
    Dashboard,
    Kind,
    Panel,
    Query,
    Unit,
    Variable,
    lines,
    number,
    table,
)

JOB = '{job_namespace="$job_namespace", job_name="$job_name"}'


def of_job(series: str) -> str:
    """The series of the chosen job, of the replica that leads."""
    return f"max(railwright_job_{series}{JOB})"


NODES = f"max by (node_name) (railwright_job_node{JOB})"

REMAINING = f"({of_job('total_steps')} - {of_job('step')}) * {of_job('step_seconds')}"

DASHBOARD = Dashboard(
    "railwright-job",
    "Railwright / Job",
    "How does this job go, and what stopped it?",
    (
        Panel(
            "Phase",
            "The course of the job. It is Recovering from the end of an attempt until the next one "
            "gets nodes.",
            Kind.STATES,
            Unit.COUNT,
            (Query(f"max by (phase) (railwright_job_phase{JOB})", "{{phase}}"),),
            width=24,
        ),
        number(
            "Progress",
            f"{of_job('step')} / {of_job('total_steps')}",
            "Share of the steps that is done. Empty if the script does not report their number.",
            Unit.SHARE,
            may_be_empty=True,
        ),
        number(
            "Remaining time",
            REMAINING,
            "Steps that are left, at the present time of a step. Checkpoints and restarts are not "
            "part of it.",
            Unit.DURATION,
            may_be_empty=True,
        ),
        number(
            "Restarts", of_job("restarts_total"), "Attempts that another one followed.", alarm=3
        ),
        number(
            "Age of the last heartbeat",
            of_job("heartbeat_age_seconds"),
            "Of the launcher that has been silent for the longest time.",
            Unit.SECONDS,
            alarm=15,
        ),
        Panel(
            "Nodes and racks",
            "Nodes of the live attempt, and the domains of the finest level that they span.",
            Kind.NUMBER,
            Unit.COUNT,
            (Query(of_job("nodes"), "nodes"), Query(of_job("racks"), "racks")),
        ),
        Panel(
            "Last restart",
            "Time until the operator found the failure and ended the attempt, and from then until "
            "every rank of the next one passed the start barrier. Empty before one.",
            Kind.NUMBER,
            Unit.SECONDS,
            (
                Query(of_job("last_detection_seconds"), "failure to detection"),
                Query(of_job("last_recovery_seconds"), "detection to barrier"),
            ),
            width=6,
            may_be_empty=True,
        ),
        number(
            "Size of a checkpoint",
            of_job("checkpoint_size_bytes"),
            "The files of all ranks of the group that trains.",
            Unit.BYTES,
        ),
        lines(
            "Time of a step",
            {
                "measured": of_job("step_seconds"),
                "predicted": of_job("predicted_step_seconds"),
                "of it exposed communication": of_job("predicted_exposed_communication_seconds"),
            },
            "Measured over ten seconds or more, and predicted by the cost model, with the "
            "communication that no computation overlaps. Empty if the job does not say what it "
            "trains.",
            Unit.SECONDS,
            may_be_empty=True,
        ),
        lines(
            "Samples per second",
            {"samples": of_job("samples_per_second")},
            "Over all ranks, if the script reports it.",
            Unit.PER_SECOND,
            may_be_empty=True,
        ),
        lines(
            "Steps",
            {"done": of_job("step"), "in the newest checkpoint": of_job("checkpoint_step")},
            "The gap is what a failure would repeat.",
        ),
        lines(
            "Age of the newest checkpoint",
            {
                "age": f"time() - {of_job('checkpoint_timestamp_seconds')}",
                "time to save it": of_job("checkpoint_save_seconds"),
            },
            "Time since the group that trains committed one, and from its begin to its commit, in "
            "which no rank trains.",
            Unit.SECONDS,
        ),
        lines(
            "GPU utilization of its nodes",
            {
                "{{node_name}}": "max by (node_name) (railwright_node_gpu_utilization_ratio) "
                f"and on (node_name) {NODES}"
            },
            "Share of time in which a GPU runs a kernel, mean over the GPUs of a node. Empty if "
            "the agents cannot read it.",
            Unit.SHARE,
            may_be_empty=True,
        ),
        table(
            "State of its nodes",
            f"max by (node_name, state) (railwright_job_node{JOB})",
            "Available, why no pod is placed on the node, LauncherSilent if only the launcher is "
            "silent, or Missing without a Node.",
            column="",
        ),
        table(
            "Slow nodes of the job",
            f"{SLOW} and on (node_name) {NODES}",
            "Speed of the slowest device of a node over that of most devices of its kind.",
            Unit.SHARE,
            column="Relative speed",
            may_be_empty=True,
        ),
        table(
            "What ended the last attempt",
            "time() - max by (cause, node_name) "
            f"(railwright_job_last_termination_timestamp_seconds{JOB})",
            "Time since then, by cause, with the node if it is of one. `kubectl describe tj` has "
            "the rank and its last lines.",
            Unit.DURATION,
            column="Time since then",
            may_be_empty=True,
        ),
    ),
    (
        Variable("job_namespace", "Namespace", "railwright_job_attempt"),
        Variable("job_name", "Job", 'railwright_job_attempt{job_namespace="$job_namespace"}'),
    ),
)
