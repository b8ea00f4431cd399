"""A committed attempt -> its Placement: who goes where, from where it resumes, and why again."""

from __future__ import annotations

from typing import Any

from railwright_api import names
from railwright_operator.write import merits, pods
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.record import ResumePoint


def name(job_name: str, attempt: int) -> str:
    """The Placement's name: one for each attempt."""
    return f"{job_name}-{attempt}"


def render(
    entry: Entry, *, epoch: int, resume: tuple[ResumePoint, ...], why: str
) -> dict[str, Any]:
    """The Placement; ``why`` is for people."""
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "Placement",
        "metadata": {
            "name": name(entry.job_name, entry.attempt),
            "namespace": entry.namespace,
            "labels": {
                names.LABEL_JOB_NAME: entry.job_name,
                names.LABEL_JOB_UID: entry.job_uid,
                names.LABEL_ATTEMPT: str(entry.attempt),
            },
            "ownerReferences": [pods.owner_reference(entry.job_name, uid=entry.job_uid)],
        },
        "spec": {
            "jobUID": entry.job_uid,
            "attempt": entry.attempt,
            "epoch": epoch,
            "nodes": list(entry.nodes),
            "spans": [{"level": level, "domains": count} for level, count in entry.spans],
            "resume": [{"attempt": p.attempt, "step": p.step} for p in resume],
            "reason": why,
        }
        | ({"mapping": merits.render(entry.merits)} if entry.merits else {}),
    }
