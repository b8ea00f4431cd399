"""Render a job's status from its record and the results of a scheduling cycle.

Later cycles read back the fields of the record; all others are for people. Sentences come from
``explain`` and from causes. The reporter calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from railwright import protocol
from railwright_api import schema, training_job_status
from railwright_conversion import bounds, checkpoints, times
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.report.kept_status import UNREADABLE
from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.assessment import HOLD_S, Ongoing
from railwright_scheduler.attempt.causes import FINAL_CAUSES, Cause
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord, specs_differ
from railwright_scheduler.model import reasons
from railwright_scheduler.model.evidence import ObservedRank, PodState
from railwright_scheduler.model.reasons import Reason

NODES_NAMED_MAX = 4
RANKS_NAMED_MAX = 16
IMAGES_NAMED_MAX = 2
SKIPPED_BYTES_MAX = 512

QUEUED = "Queued"
BINDING = "Binding"
PULLING_IMAGES = "PullingImages"
CONTAINER_CREATING = "ContainerCreating"
AT_BARRIER = "AtBarrier"
PROFILING = "Profiling"
LAUNCHER_SILENT = "LauncherSilent"
NODES_UNREACHABLE = "NodesUnreachable"
DOUBLE_BOOKED = "NodeDoubleBooked"
UNHEALTHY = (LAUNCHER_SILENT, NODES_UNREACHABLE, DOUBLE_BOOKED)
"""Reasons of the condition Healthy of an attempt that goes on."""

REFRESHED = frozenset({"progress", "message", "conditions"})
"""Fields of a waiting job that change with every node that becomes free, and of a starting job with
every pod. A new reason is a change, except between the steps of a start."""

REFRESHING = frozenset({Phase.QUEUED, Phase.PROFILING, Phase.STARTING})
"""The phases in which it may."""

ENDS = {"Suspended": Phase.SUSPENDED, "Complete": Phase.SUCCEEDED, "Failed": Phase.FAILED}
"""The phases in which these conditions are True."""

START_STEPS = frozenset({BINDING, PULLING_IMAGES, CONTAINER_CREATING, AT_BARRIER})
"""Most last less than a second: a status write for each would cost thousands of writes."""

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StatusInput:
    """One job after a cycle: ``now`` is the time to write, RFC 3339; ``before`` the status held.

    ``training_group`` is the group of the role that trains.
    ``ranks`` is empty while the attempt is in the ledger: its pods are not all bound yet.
    ``unprofiled`` are the kinds of its nodes' devices that its profile was not recorded on; None if
    it has no profile.
    ``unreadable`` is why the job's newest version cannot be read; its record is then the last that
    could. Two that differ in nothing but ``now`` are equal: one has nothing to add to the other.
    """

    record: JobRecord
    before: Mapping[str, Any]
    generation: int
    now: str = field(compare=False)
    failures_used: str
    racks: int | None = None
    unprofiled: tuple[str, ...] | None = None
    wait: Reason | None = None
    assessment: Ongoing | None = None
    session: SessionView | None = None
    training_group: str = ""
    ranks: Sequence[ObservedRank] = field(default=())
    unreadable: str | None = None
    set_aside: Mapping[str, Any] | None = None
    double_booking: str = ""


def render(given: StatusInput) -> Status:
    """Render the status: fields without a value are left out, those of a later version kept."""
    record = given.record
    headline = _headline(given)
    reason, message = bounds.word(headline[0]), bounds.sentence(headline[1])
    status: Status = {
        "observedGeneration": given.generation,
        "phase": record.phase.value,
        "reason": reason,
        "message": message,
        "attempt": record.attempt,
        "endedAttempt": record.ended,
        "restarts": record.restarts,
        "moves": record.moves or None,
        "failures": record.failures,
        "failureTimes": [times.render(time_s) for time_s in record.failure_times_s],
        "startFailures": record.start_failures or None,
        "hangs": record.hangs or None,
        "nodes": _kept(given, "nodes", len(set(record.nodes)) or None),
        "specHash": record.spec_hash,
        "racks": _kept(given, "racks", given.racks),
        "progress": _progress(given),
        "checkpoints": checkpoints.render_over(
            given.before.get("checkpoints", ()), record.checkpoints
        ),
        "preRun": _pre_run(given),
        "schedulingBackoff": None if given.set_aside is None else dict(given.set_aside),
        "lastTermination": _last_termination(given),
        "startedAt": times.render_known(record.started_s),
        "finishedAt": _finished_at(given),
        "conditions": _conditions(given, reason, message),
    }
    later = {name: value for name, value in given.before.items() if name not in status}
    return later | {name: value for name, value in status.items() if value not in (None, [], "")}


def _kept(given: StatusInput, name: str, value: int | None) -> int | None:
    """A number of the live attempt; that of the attempt which succeeded is kept."""
    if given.record.phase is Phase.SUCCEEDED:
        return given.before.get(name)
    return value if given.record.live else None


def _finished_at(given: StatusInput) -> str | None:
    is_final = given.record.phase in FINAL
    return given.before.get("finishedAt") or (given.now if is_final else None)


def _pre_run(given: StatusInput) -> Status | None:
    found = given.record.pre_run
    if found is None:
        return None
    message = bounds.sentence(found.given_up) or None
    facts = {"specHash": found.spec_hash, "attempts": found.attempts, "message": message}
    before = given.before.get("preRun", {})
    same = not specs_differ(before.get("specHash", ""), found.spec_hash)
    later = {name: value for name, value in before.items() if name not in facts} if same else {}
    return later | {name: value for name, value in facts.items() if value is not None}


def _profile_applied(given: StatusInput) -> tuple[bool | None, str, str]:
    if given.unprofiled is None:
        return False, "NoProfile", "no profile of this workload was recorded"
    if not given.record.nodes:
        return None, "NoNodes", "the job has no nodes to compare devices with"
    if devices := ", ".join(given.unprofiled):
        message = f"the profile was not recorded on {devices}, which the nodes have"
        return False, "OtherDevices", message
    return True, "DevicesMatch", "the profile was recorded on the devices that the nodes have"


def is_refresh(before: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Whether a patch changes only numbers of the status: the progress, the numbers of a wait in
    the queue, or the step of a start."""
    if patch.keys() <= {"progress"}:
        return True
    is_step = {before.get("reason"), patch.get("reason")} <= START_STEPS
    changed = patch.keys() - {"reason"} if is_step else patch.keys()
    if before.get("phase") not in REFRESHING or not changed <= REFRESHED:
        return False
    after = patch.get("conditions") or before.get("conditions", [])
    return _holding(before.get("conditions", [])) == _holding(after)


def skipped_checkpoints(status: Mapping[str, Any]) -> str:
    """The message of a status about checkpoints that an attempt skipped; empty if there is none."""
    given = (each for each in status.get("conditions", []) if each["type"] == "Checkpointed")
    return next((str(each["message"]).partition("; ")[2] for each in given), "")


def _holding(conditions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in conditions}


def _headline(given: StatusInput) -> tuple[str, str]:
    record = given.record
    if given.unreadable is not None:
        return UNREADABLE, given.unreadable
    if given.wait is not None and record.phase in (Phase.QUEUED, Phase.RECOVERING):
        pre_run = record.pre_run
        which = "its pre-run waits: " if pre_run is not None and not pre_run.given_up else ""
        return reasons.code(given.wait), which + given.wait.sentence()
    if record.live and given.assessment is not None and given.assessment.held:
        return NODES_UNREACHABLE, _unreachable(given.assessment, record)
    if record.live:
        return _going_on(given)
    if record.phase is Phase.SUCCEEDED:
        return "Succeeded", f"every rank ended with 0 in attempt {record.attempt}"
    if record.phase is Phase.SUSPENDED:
        return "Suspended", "spec.suspend is set; clear it to queue the job again"
    if record.last_termination is not None:
        return record.last_termination.code.value, _ended(given, record.last_termination)
    return QUEUED, "waiting for the next scheduling cycle"


def _going_on(given: StatusInput) -> tuple[str, str]:
    phase, session = given.record.phase, given.session
    if phase is Phase.RUNNING:
        return _running(given)
    if phase is Phase.PROFILING and session is not None and session.started_at_s is not None:
        return PROFILING, _profiling(given)
    return _starting(given)


def _ended(given: StatusInput, cause: Cause) -> str:
    record = given.record
    if record.phase is Phase.FAILED and cause.code in FINAL_CAUSES:
        return f"{cause.message}; no other attempt follows"
    if record.phase is Phase.FAILED:
        return f"{cause.message}; {given.failures_used}"
    if record.backoff_s:
        return f"{cause.message}; the next attempt follows in {record.backoff_s} s"
    return f"{cause.message}; the next attempt follows when its nodes are free"


def _starting(given: StatusInput) -> tuple[str, str]:
    """The start step of the attempt's slowest pod."""
    ranks, nodes = given.ranks, len(given.record.nodes)
    if stuck := next((rank for rank in ranks if rank.waiting), None):
        code = stuck.waiting.partition(":")[0]
        return code, f"node rank {stuck.node_rank} on {stuck.node}: {stuck.waiting}"
    if pulling := [rank for rank in ranks if rank.images.pulling]:
        return PULLING_IMAGES, _pulling(pulling, len(set(given.record.nodes)))
    states = {rank.node_rank: rank.pod for rank in ranks}
    if not states or PodState.MISSING in states.values():
        return BINDING, f"attempt {given.record.attempt}: pods are being created and bound"
    if creating := [rank for rank, pod in states.items() if pod is PodState.PENDING]:
        count = f"{len(creating)} of {nodes}"
        which = f"node rank{'s' * (len(creating) > 1)} {_ranks(creating)}"
        return CONTAINER_CREATING, f"containers of {count} pods are not created yet: {which}"
    if missing := given.session.missing if given.session is not None else ():
        count = f"{len(missing)} of {nodes}"
        return AT_BARRIER, f"{count} node ranks are not at the start barrier: {_ranks(missing)}"
    return BINDING, f"attempt {given.record.attempt}: pods are being created and bound"


def _profiling(given: StatusInput) -> str:
    progress = given.session.progress if given.session is not None else None
    step = "" if progress is None else f", step {progress.step}"
    where = f"attempt {given.record.attempt} on {_summary(given.record.nodes)}"
    return f"{where} is a pre-run{step}: it records what ranks send before the job starts"


def _pulling(ranks: Sequence[ObservedRank], nodes: int) -> str:
    images = bounds.listed(sorted({rank.images.pulling for rank in ranks}), IMAGES_NAMED_MAX)
    since = min((rank.images.since for rank in ranks if rank.images.since), default="")
    message = f"pulling {images} on {len({rank.node for rank in ranks})} of {nodes} nodes"
    return f"{message} since {since}" if since else message


def _ranks(ranks: Sequence[int]) -> str:
    return bounds.listed([*map(str, ranks)], RANKS_NAMED_MAX)


def _running(given: StatusInput) -> tuple[str, str]:
    if given.assessment is not None and given.assessment.suspected:
        suspected = [given.record.nodes[rank] for rank in given.assessment.suspected]
        return LAUNCHER_SILENT, f"no heartbeat from {_summary(suspected)}; checking node leases"
    return "Running", f"attempt {given.record.attempt} on {_summary(given.record.nodes)}"


def _unreachable(assessment: Ongoing, record: JobRecord) -> str:
    """The message, without numbers that would change in every cycle."""
    suspected = [record.nodes[rank] for rank in assessment.suspected]
    named = f" ({_summary(suspected)} of this job)" if suspected else ""
    return (
        f"most nodes stopped responding at the same time{named}: the control plane may be cut off; "
        f"the attempt ends once a node is proved lost, or after {HOLD_S:.0f} s"
    )


def _summary(pods: Sequence[str]) -> str:
    """The nodes of these pods, of which several may share one."""
    nodes = tuple(dict.fromkeys(pods))
    if len(nodes) <= NODES_NAMED_MAX:
        return ",".join(map(_name, nodes))
    return f"{len(nodes):,} nodes"


def _name(text: str) -> str:
    return protocol.fitted(text, schema.NAME_LENGTH_MAX)


def _progress(given: StatusInput) -> Status | None:
    progress = given.session.progress if given.session is not None else None
    if progress is None or given.record.phase is Phase.PROFILING:
        return given.before.get("progress")
    total = progress.total_steps
    facts: Status = {
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "loss": bounds.decimal(progress.loss),
        "samplesPerSecond": bounds.decimal(progress.samples_per_s, low=0),
        "phase": progress.phase.value,
        "percent": f"{min(100, 100 * progress.step // total)}%" if total else None,
    }
    held = dict(given.before.get("progress") or {})
    time = held.pop("time", None)
    stated = {name: value for name, value in facts.items() if value is not None}
    return stated | {"time": time if time and stated == held else given.now}


def _last_termination(given: StatusInput) -> Status | None:
    cause = given.record.last_termination
    if cause is None:
        return None
    before = given.before.get("lastTermination", {})
    # An attempt that succeeded leaves the end of the one before it.
    succeeded = given.record.phase is Phase.SUCCEEDED
    same = succeeded or before.get("attempt") == given.record.ended
    facts: Status = {
        "attempt": before.get("attempt", given.record.ended) if same else given.record.ended,
        "cause": cause.code.value,
        "message": bounds.sentence(cause.message),
        "lostNodes": [_name(node) for node in cause.nodes[: schema.NODES_MAX]] or None,
        "node": None if cause.node is None else _name(cause.node),
        "rank": bounds.within(cause.rank, 0, schema.RANKS_MAX - 1),
        "exitCode": bounds.within(cause.exit_code, -(2**31), 2**31 - 1),
        "signal": None
        if cause.signal is None
        else protocol.fitted(bounds.plain(cause.signal), training_job_status.SIGNAL_LENGTH_MAX),
        "lastLines": bounds.last_lines(cause.last_lines) or None,
        "time": times.render_known(cause.time_s or None),
    }
    later = {name: value for name, value in before.items() if name not in facts} if same else {}
    return later | {name: value for name, value in facts.items() if value is not None}


def _conditions(given: StatusInput, reason: str, message: str) -> list[Status]:
    record, phase = given.record, given.record.phase
    placed = record.live or phase is Phase.SUCCEEDED
    where = f"attempt {record.attempt} on {_summary(record.nodes)}"
    why_not = f"the job is {phase.value}, {given.failures_used}"
    facts = {
        "Scheduled": (placed, "Placed" if placed else reason, where if placed else message),
        "Running": (phase is Phase.RUNNING, reason, message),
        "Healthy": _healthy(given, reason, message),
        "Checkpointed": _checkpointed(given),
        "ProfileApplied": _profile_applied(given),
        **{
            name: (True, reason, message) if phase is end else (False, "Not" + name, why_not)
            for name, end in ENDS.items()
        },
    }
    held = {condition["type"]: condition for condition in given.before.get("conditions", [])}
    conditions = []
    for name, (holds, why, text) in facts.items():
        before, status = held.pop(name, {}), "Unknown" if holds is None else str(holds)
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        conditions.append(
            {
                "type": name,
                "status": status,
                "reason": why,
                "message": bounds.sentence(text),
                "lastTransitionTime": since or given.now,
                "observedGeneration": given.generation,
            }
        )
    return [*conditions, *held.values()]  # Conditions of a later version stay.


def _checkpointed(given: StatusInput) -> tuple[bool, str, str]:
    unfit = _skipping(given)
    more = f"; {unfit}" if unfit else ""
    newest = resume_points.newest(given.record.checkpoints, given.training_group)
    if newest is None:
        return False, "NoCheckpoint", f"no checkpoint was committed yet{more}"
    return True, "Committed", f"step {newest.step} of attempt {newest.attempt}{more}"


def _skipping(given: StatusInput) -> str:
    """The checkpoints that the newest attempt skipped. The message stays until launchers have
    reported to a new leader."""
    mark = f"attempt {given.record.attempt} skipped as torn or corrupt: "
    ranks = given.session.ranks if given.session is not None else ()
    found = sorted({name for rank in ranks for name in rank.skipped})
    if found:
        return protocol.fitted(mark + ", ".join(found), SKIPPED_BYTES_MAX)
    held = skipped_checkpoints(given.before)
    return held if held.startswith(mark) else ""


def _healthy(given: StatusInput, reason: str, message: str) -> tuple[bool, str, str]:
    if given.double_booking and given.record.phase not in FINAL:
        return False, DOUBLE_BOOKED, given.double_booking
    verdict = given.assessment
    silent = verdict is not None and (verdict.held or bool(verdict.suspected))
    ill = silent or given.record.phase in (Phase.RECOVERING, Phase.FAILED)
    return (False, reason, message) if ill else (True, "NothingFound", "")
