"""Prometheus series of single jobs, computed at each scrape from the last scheduling cycle.

A job has series from its first cycle until it ends. At most ``JOBS_MAX`` jobs have them, those with
a live attempt before those that wait, so that their number is bounded whatever users create. Their
labels are the namespace and the name of the job. How a job ended stays for ``ENDED_S``. The
reporter calls this.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from railwright_kube.metrics import Sample, ScrapedMetrics
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.report.attempt_metrics import cause_label, queued_since_s
from railwright_operator.report.status import StatusInput
from railwright_operator.watch.owned import PlacementRecord
from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model import reasons

JOBS_MAX = 500
"""With 24 series each, and those of nodes, a process stays below 20,000 series, at which a scrape
takes some 0.2 s of CPU."""

ENDED_MAX = 100
"""Jobs that ended and still have their last phase and termination, the newest ones."""

ENDED_S = 900.0
"""How long they have them, from the first scrape on: many evaluations of an alert, and long enough
to be seen on a dashboard of now."""

CAUSES_MAX = 4
OTHER_CAUSES = "Other"
"""Attempts are counted by so many causes for each job, and those that ended otherwise together."""

STEP_WINDOW_S = 10.0
"""The least time over which the time of a step is measured: heartbeats are seconds apart."""

LABELS = ("job_namespace", "job_name")
"""A target of Prometheus has the labels ``namespace`` and ``job`` itself."""


OF_ENDED_JOBS = (
    f"It stays for {ENDED_S / 60:.0f} minutes after the job ended, for the {ENDED_MAX} newest "
    "such jobs, unless the job is deleted or another operator leads."
)

GAUGES: dict[str, tuple[str, ...]] = {
    "phase": (f"1 for the current phase of the job. {OF_ENDED_JOBS}", "phase"),
    "waiting_since_timestamp_seconds": (
        "Unix time since which the job waits in its queue, by the reason why.",
        "reason",
    ),
    "attempt": ("Number of the newest attempt.",),
    "nodes": ("Nodes of the live attempt.",),
    "racks": ("Domains of the finest level of the fabric, commonly racks, that the nodes span.",),
    "step": ("Optimizer steps that are done, as reported by the group that trains.",),
    "total_steps": ("Optimizer steps of the whole run, if the script reports them.",),
    "samples_per_second": ("Samples trained per second over all ranks, if the script reports it.",),
    "step_seconds": (
        f"Mean time of a step, measured over {STEP_WINDOW_S:.0f} s or more; the time since the "
        "newest step if that is longer.",
    ),
    "predicted_step_seconds": (
        "Time of a step that the cost model predicted for the live attempt.",
    ),
    "predicted_exposed_communication_seconds": (
        "How much of that time is communication that no computation overlaps.",
    ),
    "heartbeat_age_seconds": (
        "Time since the last heartbeat of the launcher that has been silent for the longest time, "
        "of those with a running rank.",
    ),
    "checkpoint_step": ("Step of the newest committed checkpoint of the group that trains.",),
    "checkpoint_timestamp_seconds": (
        "Unix time of that commit. No value until an operator, once it leads, has seen one, nor "
        "after a newer checkpoint was lost.",
    ),
    "checkpoint_size_bytes": ("Size of the files of that checkpoint, as its rank 0 reported it.",),
    "checkpoint_save_seconds": ("Time that saving it took, from its begin to its commit.",),
    "last_termination_timestamp_seconds": (
        "Unix time at which the last attempt ended that did not succeed, by cause, with the node "
        f"if it is of one. {OF_ENDED_JOBS}",
        "cause",
        "node_name",
    ),
    "last_detection_seconds": (
        "How long the last detection of a failure took, as in railwright_detection_seconds. No "
        "value until an operator, once it leads, has seen one.",
    ),
    "last_recovery_seconds": (
        "How long the last recovery took, as in railwright_recovery_seconds. No value until an "
        "operator, once it leads, has seen one.",
    ),
}
"""The gauges of a job, without their prefix: what each is, and its labels besides the job's."""

JOBS_GAUGES = {f"job_{name}": (text, *LABELS, *more) for name, (text, *more) in GAUGES.items()}
JOBS_GAUGES["jobs_without_series"] = (
    f"Jobs that have no series of their own, as more than {JOBS_MAX} have not ended.",
)
COUNTERS = {
    "job_restarts": (
        "Attempts that ended after their pods were bound and that another attempt followed.",
        *LABELS,
    ),
    "job_attempts_ended": (
        "Attempts that ended, by cause, since an operator, once it leads, has seen the job: "
        f"{CAUSES_MAX} causes, and the others together as {OTHER_CAUSES}.",
        *LABELS,
        "cause",
    ),
}


@dataclass(slots=True)
class _StepTimer:
    """The mean time of a step over at least ``STEP_WINDOW_S``; None before it is measured."""

    since: tuple[int, float] | None = None
    newest: tuple[int, float] = (0, 0.0)
    mean_s: float | None = None
    still_s: float = 0.0

    def record(self, step: int, at_s: float) -> None:
        """Take in that this step was reported at this time."""
        if self.since is None or step < self.since[0]:
            self.since, self.newest, self.mean_s = (step, at_s), (step, at_s), None
        if step > self.newest[0]:
            self.newest = step, at_s
        self.still_s = at_s - self.newest[1]
        first, since_s = self.since
        if step > first and at_s - since_s >= STEP_WINDOW_S:
            self.since, self.mean_s = (step, at_s), (at_s - since_s) / (step - first)

    @property
    def step_s(self) -> float | None:
        """The mean, or the time since the newest step if that is longer."""
        return None if self.mean_s is None else max(self.mean_s, self.still_s)


@dataclass(slots=True)
class _JobSeries:
    """The last cycle of one job. ``silent_s`` is how long its most silent launcher was. This
    process saw the newest checkpoint, ``committed``, come at ``committed_s``, Unix time; None if it
    did not. If it waits, it does since
    ``waits_since_s``, Unix time."""

    name: tuple[str, str]
    given: StatusInput
    waits_since_s: int
    placement: PlacementRecord | None = None
    timer: _StepTimer = field(default_factory=_StepTimer)
    committed: tuple[int, int] | None = None
    committed_s: float | None = None
    silent_s: float | None = None
    restart_s: dict[str, float] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)

    def record_end(self, cause: str) -> None:
        """Take in that an attempt ended with this cause."""
        is_one_more = cause not in self.ended and len(self.ended) >= CAUSES_MAX
        self.ended[OTHER_CAUSES if is_one_more else cause] += 1

    def record_checkpoint(self, newest: tuple[int, int] | None, now_s: float) -> None:
        """Take in the newest checkpoint. One that is older than that before is what was left when
        that was lost: when it was committed is not known."""
        if newest == self.committed:
            return
        is_later = newest is not None and (self.committed is None or newest > self.committed)
        self.committed, self.committed_s = newest, now_s if is_later else None


@dataclass(slots=True)
class _EndedJob:
    """A job that ended. ``until_s`` is set by its first scrape."""

    name: tuple[str, str]
    record: JobRecord
    until_s: float | None = None


@dataclass(eq=False, repr=False)
class JobMetrics(ScrapedMetrics):
    """Collects the series of all jobs. ``clock`` is monotonic seconds, ``reception_clock`` that of
    the times of heartbeats, ``wall_clock`` Unix time."""

    registry: CollectorRegistry
    _: KW_ONLY
    clock: Callable[[], float]
    reception_clock: Callable[[], float]
    wall_clock: Callable[[], float]

    gauges, counters = JOBS_GAUGES, COUNTERS

    def __post_init__(self) -> None:
        self._jobs: dict[str, _JobSeries] = {}
        self._ended: dict[str, _EndedJob] = {}
        self.registry.register(self)

    def record(
        self,
        job: Mapping[str, Any],
        given: StatusInput,
        placement: PlacementRecord | None,
        *,
        submitted_s: int,
    ) -> None:
        """Take in the job with this metadata after a cycle, with the Placement of its live attempt,
        and the Unix time at which it was created. Most of its series end when it does."""
        uid, name = job["uid"], (job["namespace"], job["name"])
        if given.record.phase in FINAL:
            self._jobs.pop(uid, None)
            self._ended.setdefault(uid, _EndedJob(name, given.record)).record = given.record
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]
            return
        self._ended.pop(uid, None)  # Its end was not written, and the next cycle found none.
        series = self._jobs.get(uid)
        if series is None:
            since_s = queued_since_s(given.before, submitted_s)
            series = _JobSeries(name, given, since_s)
            series.committed = _newest_checkpoint(given)
            self._jobs[uid] = series
        elif series.given.before is not given.before:
            series.waits_since_s = queued_since_s(given.before, submitted_s)
        series.given = given
        series.placement = placement
        series.record_checkpoint(_newest_checkpoint(given), self.wall_clock())
        series.silent_s = _silent_s(given.session, self.reception_clock())
        reporting = _reporting(given)
        if reporting is None:
            series.timer = _StepTimer()
        elif reporting.progress is not None and reporting.received_at_s is not None:
            series.timer.record(reporting.progress.step, reporting.received_at_s)

    def record_restart(self, uid: str, cause: Cause | None, took_s: Mapping[str, float]) -> None:
        """Take in the cause, if an attempt of the job ended, and how long the detection or the
        recovery took that just ended."""
        if series := self._jobs.get(uid):
            series.restart_s |= took_s
            if cause is not None:
                series.record_end(cause_label(cause))

    def forget_all_but(self, uids: Collection[str]) -> None:
        """Remove the series of all jobs but these."""
        self._jobs = {uid: series for uid, series in self._jobs.items() if uid in uids}
        self._ended = {uid: ended for uid, ended in self._ended.items() if uid in uids}

    def samples(self) -> Iterator[Sample]:
        """The current values. May be called in another thread than the event loop's."""
        now_s = self.clock()
        # Before the others: a job that ends meanwhile must not be in both.
        for ended in list(self._ended.values()):
            if ended.until_s is None:
                ended.until_s = now_s + ENDED_S
            if now_s < ended.until_s:
                yield from _of_job(ended.name, _end_samples(ended.record))
        # All of one moment: a job must not be in both groups.
        jobs = [(each, each.given) for each in list(self._jobs.values())]
        live = (each for each in jobs if each[1].record.live)
        waiting = (each for each in jobs if not each[1].record.live)
        for series, given in itertools.islice(itertools.chain(live, waiting), JOBS_MAX):
            yield from _of_job(series.name, _samples(series, given))
        yield "jobs_without_series", max(0, len(jobs) - JOBS_MAX), ()


def _of_job(name: tuple[str, str], samples: Iterable[Sample]) -> Iterator[Sample]:
    """These samples, with the prefix and the labels of the job."""
    for series, value, labels in samples:
        yield f"job_{series}", value, (*name, *labels)


def _samples(series: _JobSeries, given: StatusInput) -> Iterator[Sample]:
    record = given.record
    yield from _end_samples(record)
    if given.wait is not None:
        code = reasons.code(given.wait)
        yield "waiting_since_timestamp_seconds", series.waits_since_s, (code,)
    yield "attempt", record.attempt, ()
    yield "restarts", record.restarts, ()
    if (newest := _newest_checkpoint(given)) is not None:
        yield "checkpoint_step", newest[1], ()
    values: dict[str, float | None] = {"checkpoint_timestamp_seconds": series.committed_s}
    values |= series.restart_s
    for name, count in list(series.ended.items()):
        yield "attempts_ended", count, (name,)
    if record.live:
        values["nodes"] = len(set(record.nodes))
        values["racks"] = given.racks
        if (placement := series.placement) is not None:
            values["predicted_step_seconds"] = placement.predicted_step_s
            values["predicted_exposed_communication_seconds"] = placement.predicted_exposed_s
        values["heartbeat_age_seconds"] = series.silent_s
    if record.live and record.phase is not Phase.PROFILING:
        values["step_seconds"] = series.timer.step_s
        values |= {} if given.session is None else _reported(given.session, given.training_group)
    yield from ((name, value, ()) for name, value in values.items() if value is not None)


def _end_samples(record: JobRecord) -> Iterator[Sample]:
    """Those that a job keeps for a while when it ends."""
    yield "phase", 1, (record.phase.value,)
    cause = record.last_termination
    if cause is not None and cause.time_s:
        labels = (cause_label(cause), cause.node or "")
        yield "last_termination_timestamp_seconds", cause.time_s, labels


def _reported(session: SessionView, group: str) -> dict[str, float | None]:
    """The values that launchers reported."""
    values: dict[str, float | None] = {}
    if (progress := session.progress) is not None:
        values["step"], values["total_steps"] = progress.step, progress.total_steps
        values["samples_per_second"] = progress.samples_per_s
    master = session.master_of(group)
    if master is not None and master.saved is not None:
        values["checkpoint_size_bytes"] = master.saved.size_bytes
        values["checkpoint_save_seconds"] = master.saved.seconds
    return values


def _silent_s(session: SessionView | None, now_s: float) -> float | None:
    """The time since the last heartbeat of the most silent launcher with a running rank."""
    received = [
        rank.received_at_s
        for rank in (() if session is None else session.ranks)
        if rank.received_at_s is not None and rank.running
    ]
    return max(0.0, now_s - min(received)) if received else None


def _newest_checkpoint(given: StatusInput) -> tuple[int, int] | None:
    """Attempt and step of the newest checkpoint of the group that trains."""
    newest = resume_points.newest(given.record.checkpoints, given.training_group)
    return None if newest is None else (newest.attempt, newest.step)


def _reporting(given: StatusInput) -> LauncherView | None:
    """The launcher whose progress is that of the job. A pre-run has none that counts."""
    session, record = given.session, given.record
    if session is None or not record.live or record.phase is Phase.PROFILING:
        return None
    return session.reporting
