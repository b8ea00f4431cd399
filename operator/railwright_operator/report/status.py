"""What a user sees of a job: its status, from the record and what this turn found out.

The record's fields are the truth that later turns read back; everything else is told for people.
Words come from ``explain`` and from causes; here they are only put where people look for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from railwright import protocol
from railwright_api import schema, training_job
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.pre_runs import NOTHING, Standing
from railwright_operator.report import bounds
from railwright_scheduler import explain
from railwright_scheduler.attempt.assessment import HOLD_S, Ongoing, PodState, RankSeen
from railwright_scheduler.attempt.causes import FINAL_CAUSES, Cause
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord, ResumePoint
from railwright_scheduler.decisions import Reason

NODES_NAMED_MAX = 4
RANKS_NAMED_MAX = 16
IMAGES_NAMED_MAX = 2
SKIPPED_BYTES_MAX = 512

QUEUED = "Queued"
BINDING = "Binding"
PULLING_IMAGES = "PullingImages"
CONTAINER_CREATING = "ContainerCreating"
AT_BARRIER = "AtBarrier"
NODES_UNREACHABLE = "NodesUnreachable"
UNREADABLE = "Unreadable"
DOUBLE_BOOKED = "NodeDoubleBooked"

RETOLD = frozenset({"progress", "message", "conditions"})
"""What may change of a waiting job with every node that comes free, and of a starting one with
every pod; another reason is news, but for the steps of a start."""

START_STEPS = frozenset({BINDING, PULLING_IMAGES, CONTAINER_CREATING, AT_BARRIER})
"""Most last for less than a second: a status that follows each costs thousands of writes."""

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """One job after a turn: ``now`` is the time to write, RFC 3339; ``before`` the status held.

    ``ranks`` is empty while the attempt is in the ledger: its pods are not all bound yet.
    ``unprofiled`` are the kinds of its nodes' devices that its profile was not taken on.
    ``unreadable`` is why the job's newest version cannot be read; its record is then the last that
    could. Two that differ in nothing but ``now`` are equal: one has nothing to add to the other.
    """

    record: JobRecord
    before: Mapping[str, Any]
    generation: int
    now: str = field(compare=False)
    num_nodes: int
    racks: int | None = None
    unprofiled: tuple[str, ...] = ()
    wait: Reason | None = None
    assessment: Ongoing | None = None
    session: SessionView | None = None
    ranks: Sequence[RankSeen] = field(default=())
    unreadable: str | None = None
    pre_run: Standing = NOTHING
    set_aside: Mapping[str, Any] | None = None
    double_booking: str = ""


def render(told: Told) -> Status:
    """The whole status; fields without a value are left out, those of a later version are kept."""
    record = told.record
    headline = _headline(told)
    reason, message = bounds.word(headline[0]), bounds.sentence(headline[1])
    status: Status = {
        "observedGeneration": told.generation,
        "phase": record.phase.value,
        "reason": reason,
        "message": message,
        "attempt": record.attempt,
        "endedAttempt": record.ended,
        "restarts": record.restarts,
        "moves": record.moves or None,
        "failures": record.failures,
        "earlyEnds": record.early_ends or None,
        "hangs": record.hangs or None,
        "nodes": [_name(node) for node in record.nodes[: schema.NODES_MAX]],
        "shape": record.shape,
        "known": record.known,
        "nodesSummary": _summary(record.nodes),
        "racks": told.racks if record.nodes else None,
        "progress": _progress(told),
        "checkpoints": [{"attempt": p.attempt, "step": p.step} for p in _newest(record)],
        "profile": _profile(told),
        "profileAside": _profile_aside(told),
        "preRun": _pre_run(told),
        "setAside": None if told.set_aside is None else dict(told.set_aside),
        "lastEnd": _last_end(told),
        "startedAt": told.before.get("startedAt")
        or (told.now if record.phase is Phase.RUNNING else None),
        "finishedAt": told.before.get("finishedAt")
        or (told.now if record.phase in FINAL else None),
        "conditions": _conditions(told, reason, message),
    }
    later = {name: value for name, value in told.before.items() if name not in status}
    return later | {name: value for name, value in status.items() if value not in (None, [], "")}


def _profile(told: Told) -> str | None:
    """The newest that any attempt recorded, or that was recorded ahead of the next."""
    # What an attempt recorded was told while it ran: once another is to come it may no longer fit.
    is_next = not told.record.live and told.record.phase not in FINAL
    newest = "" if told.session is None or is_next else told.session.profile
    return told.pre_run.profile or newest or told.before.get("profile")


def _pre_run(told: Told) -> Status | None:
    end = told.pre_run.end
    return {"of": end.of, "message": bounds.sentence(end.message)} if end else None


def _profile_aside(told: Told) -> str | None:
    if not told.unprofiled:
        return None
    devices = ", ".join(told.unprofiled)
    return bounds.sentence(f"it was taken on other devices than {devices}, which its nodes have")


def unreadable(before: Mapping[str, Any], *, generation: int, why: str) -> Status:
    """The status of a job of which nothing can be read: as it was, but for the reason."""
    facts: Status = {"observedGeneration": generation, "reason": UNREADABLE, "message": why}
    return {"phase": Phase.QUEUED.value, **before, **facts}


def is_retold(before: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Whether a patch only says with newer numbers what the status says: progress, for what the
    job waits in the queue, or the step that its start has reached."""
    if patch.keys() <= {"progress"}:
        return True
    is_step = {before.get("reason"), patch.get("reason")} <= START_STEPS
    changed = patch.keys() - {"reason"} if is_step else patch.keys()
    if before.get("phase") not in (Phase.QUEUED, Phase.STARTING) or not changed <= RETOLD:
        return False
    after = patch.get("conditions") or before.get("conditions", [])
    return _holding(before.get("conditions", [])) == _holding(after)


def skipped(status: Mapping[str, Any]) -> str:
    """What a status says of checkpoints that an attempt found unfit; empty if of none."""
    told = (each for each in status.get("conditions", []) if each["type"] == "Checkpointed")
    return next((str(each["message"]).partition("; ")[2] for each in told), "")


def _holding(conditions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in conditions}


def _headline(told: Told) -> tuple[str, str]:
    record = told.record
    if told.unreadable is not None:
        return UNREADABLE, told.unreadable
    if told.wait is not None and record.phase is Phase.QUEUED:
        return explain.code(told.wait), explain.sentence(told.wait)
    if record.live and told.assessment is not None and told.assessment.held:
        return NODES_UNREACHABLE, _unreachable(told.assessment, record)
    if record.phase is Phase.STARTING:
        return _starting(told)
    if record.phase is Phase.RUNNING:
        return _running(told)
    if record.phase is Phase.SUCCEEDED:
        return "Succeeded", f"every rank ended with 0 in attempt {record.attempt}"
    if record.phase is Phase.SUSPENDED:
        return "Suspended", "spec.suspend is set; clear it to queue the job again"
    if record.last_end is not None:
        return record.last_end.code.value, _ended(record, record.last_end)
    return QUEUED, "waiting for the next turn of the scheduler"


def _ended(record: JobRecord, cause: Cause) -> str:
    if record.phase is Phase.FAILED and cause.code in FINAL_CAUSES:
        return f"{cause.message}; no further attempt can mend it"
    if record.phase is Phase.FAILED:
        return f"{cause.message}; {record.failures} failures, more than backoffLimit allows"
    if record.backoff_s:
        return f"{cause.message}; the next attempt follows in {record.backoff_s} s"
    return f"{cause.message}; the next attempt follows when its nodes are free"


def _starting(told: Told) -> tuple[str, str]:
    stuck = next((rank for rank in told.ranks if rank.waiting), None)
    if stuck is not None:
        code = stuck.waiting.partition(":")[0]
        return code, f"node rank {stuck.node_rank} on {stuck.node}: {stuck.waiting}"
    if pulling := [rank.images for rank in told.ranks if rank.images.pulling]:
        images = sorted({each.pulling for each in pulling})
        named = ", ".join(images[:IMAGES_NAMED_MAX])
        more = f" and {len(images) - IMAGES_NAMED_MAX} more" * (len(images) > IMAGES_NAMED_MAX)
        since = min((each.since for each in pulling if each.since), default="")
        count = f"{len(pulling)} of {told.num_nodes} nodes"
        return PULLING_IMAGES, f"pulling {named}{more} on {count}" + f" since {since}" * bool(since)
    if not told.ranks or any(rank.pod is PodState.MISSING for rank in told.ranks):
        return BINDING, f"attempt {told.record.attempt}: pods are being created and bound"
    if creating := [rank.node_rank for rank in told.ranks if rank.pod is PodState.PENDING]:
        count = f"{len(creating)} of {told.num_nodes}"
        return CONTAINER_CREATING, f"containers of {count} pods are created: {_ranks(creating)}"
    missing = told.session.missing if told.session is not None else ()
    if missing:
        count = f"{len(missing)} of {told.num_nodes}"
        return AT_BARRIER, f"{count} node ranks are not at the start barrier: {_ranks(missing)}"
    return BINDING, f"attempt {told.record.attempt}: pods are being created and bound"


def _ranks(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:RANKS_NAMED_MAX]))
    return named + f" and {len(ranks) - RANKS_NAMED_MAX} more" * (len(ranks) > RANKS_NAMED_MAX)


def _running(told: Told) -> tuple[str, str]:
    if told.assessment is not None and told.assessment.suspects:
        suspects = [told.record.nodes[rank] for rank in told.assessment.suspects]
        return "LauncherSilent", f"not heard from {_summary(suspects)}; asking the API about them"
    return "Running", f"attempt {told.record.attempt} on {_summary(told.record.nodes)}"


def _unreachable(assessment: Ongoing, record: JobRecord) -> str:
    """Without numbers, which would change in every cycle."""
    suspects = [record.nodes[rank] for rank in assessment.suspects]
    named = f" ({_summary(suspects)} of this job)" if suspects else ""
    return (
        f"most nodes stopped responding at the same time{named}: the control plane may be cut off; "
        f"the attempt is not ended before a node is proved lost, or {HOLD_S:.0f} s have passed"
    )


def _summary(nodes: Sequence[str]) -> str:
    if len(nodes) <= NODES_NAMED_MAX:
        return ",".join(map(_name, nodes))
    return f"{len(nodes):,} nodes"


def _name(text: str) -> str:
    return protocol.fitted(text, schema.NAME_LENGTH_MAX)


def _newest(record: JobRecord) -> tuple[ResumePoint, ...]:
    return record.checkpoints[: training_job.CHECKPOINTS_MAX]


def _progress(told: Told) -> Status | None:
    progress = told.session.progress if told.session is not None else None
    if progress is None:
        return told.before.get("progress")
    total = progress.total_steps
    facts: Status = {
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "loss": bounds.real(progress.loss),
        "samplesPerSecond": bounds.rate(progress.samples_per_s),
        "phase": progress.phase.value,
        "percent": f"{min(100, 100 * progress.step // total)}%" if total else None,
    }
    told_before = dict(told.before.get("progress") or {})
    time = told_before.pop("time", None)
    stated = {name: value for name, value in facts.items() if value is not None}
    return stated | {"time": time if time and stated == told_before else told.now}


def _last_end(told: Told) -> Status | None:
    cause = told.record.last_end
    if cause is None:
        return None
    before = told.before.get("lastEnd", {})
    # An attempt that succeeded leaves the end of the one before it.
    succeeded = told.record.phase is Phase.SUCCEEDED
    same = succeeded or before.get("attempt") == told.record.ended
    facts: Status = {
        "attempt": before.get("attempt", told.record.ended) if same else told.record.ended,
        "cause": cause.code.value,
        "message": bounds.sentence(cause.message),
        "lostNodes": [_name(node) for node in cause.nodes[: schema.NODES_MAX]] or None,
        "node": None if cause.node is None else _name(cause.node),
        "rank": bounds.within(cause.rank, 0, schema.RANKS_MAX - 1),
        "exitCode": bounds.within(cause.exit_code, -(2**31), 2**31 - 1),
        "signal": None
        if cause.signal is None
        else protocol.fitted(bounds.plain(cause.signal), training_job.SIGNAL_LENGTH_MAX),
        "lastLines": bounds.last_lines(cause.last_lines) or None,
        "time": before.get("time") if same else told.now,
    }
    later = {name: value for name, value in before.items() if name not in facts} if same else {}
    return later | {name: value for name, value in facts.items() if value is not None}


def _conditions(told: Told, reason: str, message: str) -> list[Status]:
    record, phase = told.record, told.record.phase
    placed = record.live or phase is Phase.SUCCEEDED
    where = f"attempt {record.attempt} on {_summary(record.nodes)}"
    facts = {
        "Scheduled": (placed, "Placed" if placed else reason, where if placed else message),
        "Running": (phase is Phase.RUNNING, reason, message),
        "Healthy": _healthy(told, reason, message),
        "Checkpointed": _checkpointed(told),
        "Suspended": _entered(phase is Phase.SUSPENDED, reason, message),
        "Succeeded": _entered(phase is Phase.SUCCEEDED, reason, message),
        "Failed": _entered(phase is Phase.FAILED, reason, message),
    }
    held = {condition["type"]: condition for condition in told.before.get("conditions", [])}
    ours = [
        _condition(name, *fact, held=held.get(name, {}), told=told) for name, fact in facts.items()
    ]
    # Those of a later version are its own.
    return [*ours, *(condition for name, condition in held.items() if name not in facts)]


def _checkpointed(told: Told) -> tuple[bool, str, str]:
    unfit = _skipping(told)
    more = f"; {unfit}" if unfit else ""
    if not told.record.checkpoints:
        return False, "NoCheckpoint", f"no checkpoint was committed yet{more}"
    newest = told.record.checkpoints[0]
    return True, "Committed", f"step {newest.step} of attempt {newest.attempt}{more}"


def _skipping(told: Told) -> str:
    """Which checkpoints the newest attempt found unfit. What was said of it stays said, also by an
    operator that its launchers have not told yet."""
    mark = f"attempt {told.record.attempt} skipped as torn or corrupt: "
    ranks = told.session.ranks if told.session is not None else ()
    found = sorted({name for rank in ranks for name in rank.skipped})
    if found:
        return protocol.fitted(mark + ", ".join(found), SKIPPED_BYTES_MAX)
    held = skipped(told.before)
    return held if held.startswith(mark) else ""


def _healthy(told: Told, reason: str, message: str) -> tuple[bool, str, str]:
    if told.double_booking and told.record.phase not in FINAL:
        return False, DOUBLE_BOOKED, told.double_booking
    verdict = told.assessment
    silent = verdict is not None and (verdict.held or bool(verdict.suspects))
    ill = silent or told.record.phase in (Phase.RECOVERING, Phase.FAILED)
    return (False, reason, message) if ill else (True, "NothingFound", "")


def _entered(holds: bool, reason: str, message: str) -> tuple[bool, str, str]:
    return (True, reason, message) if holds else (False, "No", "")


def _condition(
    name: str, holds: bool, reason: str, message: str, *, held: Mapping[str, Any], told: Told
) -> Status:
    status = "True" if holds else "False"
    since = held.get("lastTransitionTime") if held.get("status") == status else None
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": bounds.sentence(message),
        "lastTransitionTime": since or told.now,
        "observedGeneration": told.generation,
    }
