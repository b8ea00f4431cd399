"""Messages of the launcher of a running node: heartbeats from one thread, and commits."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from railwright import (
    channel,
    endpoint,
    environment,
    log_lines,
    pacing,
    profile,
    protocol,
    stacks,
    step_times,
)

LAST_HEARTBEAT_TIMEOUT_S = 10.0
RETRY_S = 0.3

QUIET_S = 10.0
"""Without progress for this long each heartbeat has the steps of ranks: below the least limit."""

STEPS_EVERY_S = 20.0
"""The interval of heartbeats with steps while all ranks make progress. They cost the operator twice
as much."""

Reply = TypeVar("Reply")

logger = logging.getLogger(__name__)


class LauncherState:
    """The state of this node's ranks, filled from several threads.

    ``changed`` causes a heartbeat at once. ``unrecorded`` is the reason why the operator will not
    store the profile of the job. Ranks write their stacks into ``folder``.
    """

    def __init__(
        self,
        member: protocol.Member,
        world: protocol.WorldInfo,
        *,
        ranks: range,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = threading.Event()
        self.unrecorded = ""
        self._lock = threading.Lock()
        self._heartbeat = protocol.Heartbeat(
            member=member,
            sequence=0,
            running=len(ranks),
            exited=0,
            master_address=world.master_address,
            master_port=world.master_port,
        )
        self._ranks = ranks
        self._clock = clock
        self._started_s = clock()
        self._reports: dict[int, channel.Report] = {}
        self._pids: dict[int, int] = {}
        self._steps = {rank: step_times.RankSteps(rank, now_s=self._started_s) for rank in ranks}
        self._stacks = stacks.StackDesk(folder, clock=clock)
        self._strange = log_lines.Milestones("a report names no rank of this node")
        self._lost = log_lines.Milestones("ranks report faster than they are read")
        self._stood_still = False
        self._phase = protocol.Phase.STARTING
        self._steps_said_s = -math.inf
        self.revoked: str | None = None
        """The reason of the operator's order to stop; None without one."""

    def revoke(self, reason: str) -> None:
        """Record the operator's order to stop. The first reason stays."""
        with self._lock:
            self.revoked = self.revoked or protocol.fitted(reason, protocol.SENTENCE_BYTES_MAX)

    def ended(
        self, *, running: int, failure: protocol.Failure | None = None, rank: int | None = None
    ) -> None:
        """Record the end of a rank, the number of running ones, and the first failure."""
        with self._lock:
            if rank is not None:
                self._steps.pop(rank, None)
                self._pids.pop(rank, None)
        exited = len(self._ranks) - running
        self._change(running=running, exited=exited, failure=failure)

    def report(self, report: channel.Report) -> None:
        """Record the progress of a rank."""
        if report.rank not in self._ranks:
            self._strange.warn(rank=report.rank)
            return
        before = self._reports.get(report.rank)
        lost = report.dropped - (before.dropped if before is not None else 0)
        if lost > 0:
            self._lost.warn(lost, rank=report.rank)
        with self._lock:
            self._reports[report.rank] = report
            if report.rank in self._steps:
                self._steps[report.rank].report(report.progress, now_s=self._clock())
                self._pids[report.rank] = report.pid or self._pids.get(report.rank, 0)

    def request_stacks(self, requested: bool) -> None:
        """Set whether the operator requests the stacks of ranks."""
        with self._lock:
            if requested:
                self._stacks.ask({rank: pid for rank, pid in self._pids.items() if pid})
            else:
                self._stacks.forget()

    def record(self, request: channel.Request) -> None:
        """Record a report of rank 0's checkpointer."""
        self._change(
            resumed_from=request.resumed_from,
            committed=request.committed,
            saved=request.saved,
            skipped=request.skipped,
        )

    def _change(self, **facts: Any) -> None:
        """Put facts into the next heartbeat, which is sent at once. None and () change nothing."""
        news = {name: fact for name, fact in facts.items() if fact not in (None, ())}
        with self._lock:
            self._heartbeat = dataclasses.replace(self._heartbeat, **news)
        self.changed.set()

    def is_in_another_phase(self) -> bool:
        """Whether the ranks changed their phase since the last heartbeat."""
        with self._lock:
            return self._summary().phase is not self._phase

    def next_heartbeat(self) -> protocol.Heartbeat:
        """The next heartbeat."""
        with self._lock:
            self._heartbeat = dataclasses.replace(
                self._heartbeat, sequence=self._heartbeat.sequence + 1
            )
            lowest = self._reports[min(self._reports)] if self._reports else None
            return dataclasses.replace(
                self._heartbeat,
                progress=None if lowest is None else lowest.progress,
                steps=self._news_of_steps(),
                # A crash is the better cause, and both together may be too large for a message.
                stacks=None if self._heartbeat.failure else self._stacks.answer(),
            )

    def _news_of_steps(self) -> protocol.Steps | None:
        """The steps of the ranks; None in most heartbeats while all of them make progress."""
        steps, now_s = self._summary(), self._clock()
        stood_still, changed = self._stood_still, steps.phase is not self._phase
        self._phase = steps.phase
        quiet = max(steps.still_s, steps.lag_s) >= QUIET_S
        # Ranks without a report stay in STARTING, without any progress.
        self._stood_still = steps.phase is not protocol.Phase.STARTING and (
            quiet or steps.phase is not protocol.Phase.TRAINING
        )
        due = now_s - self._steps_said_s >= STEPS_EVERY_S
        if not (due or changed or stood_still or self._stood_still):
            return None
        self._steps_said_s = now_s if due else self._steps_said_s
        return steps

    def repeat_steps(self) -> None:
        """Put the steps into the next heartbeat: the one with the last news may be lost."""
        with self._lock:
            self._steps_said_s = -math.inf

    def _summary(self) -> protocol.Steps:
        ranks = list(self._steps.values())
        return step_times.summary(ranks, started_s=self._started_s, now_s=self._clock())


class Reporter:
    """The thread that sends heartbeats, and the recordings in ``folder``."""

    def __init__(self, pod: environment.Pod, state: LauncherState, folder: Path) -> None:
        self._operator = endpoint.Endpoint(pod.operator_url, pod.token_file, pod.authorities)
        self._member, self._folder = pod.member, folder
        self._pre_run = pod.pre_run
        self._state = state
        self._closing = threading.Event()
        self._is_answered = True
        self._interval_s = protocol.HEARTBEAT_INTERVAL_S
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Send the first heartbeat, then one at every interval or change."""
        self._thread.start()

    def close(self) -> None:
        """Wait until a heartbeat made after this call was answered, or for a time."""
        self._closing.set()
        self._state.changed.set()
        patience_s = pacing.patience_s(1, self._interval_s)
        self._thread.join(LAST_HEARTBEAT_TIMEOUT_S + pacing.TIMEOUT_S + patience_s)

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            began_s = time.monotonic()
            try:
                is_sent = self._send(pacing.patience_s(failures, self._interval_s))
                if is_sent:
                    self._hand_over()
            except Exception:
                # A fault of ours must not end all heartbeats.
                logger.exception("heartbeat raised")
                is_sent = False
            failures = 0 if is_sent else failures + 1
            waited_s = time.monotonic() - began_s
            self._pause(pacing.heartbeat_s(failures, self._interval_s, waited_s=waited_s))
        deadline = time.monotonic() + LAST_HEARTBEAT_TIMEOUT_S
        while not self._send() and time.monotonic() < deadline:
            time.sleep(_retry_s())
        self._hand_over()
        self._operator.close()

    def _pause(self, seconds: float) -> None:
        """Return at once at a change, and within the shortest interval after one of the phase, in
        which all launchers of a job change together."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self._state.changed.wait(min(left_s, protocol.HEARTBEAT_INTERVAL_S)):
                break
            if self._state.is_in_another_phase():
                break
        self._state.changed.clear()

    def _send(self, timeout_s: float = pacing.TIMEOUT_S) -> bool:
        """Send a heartbeat; return whether the operator has it or will never accept it."""
        heartbeat = self._state.next_heartbeat()
        try:
            answer = _post(
                self._operator,
                self._state,
                "/v1/beat",
                heartbeat,
                protocol.HeartbeatAnswer,
                timeout_s,
            )
        except (endpoint.UnreachableError, endpoint.RefusedError) as error:
            if self._is_answered:
                logger.warning("heartbeat refused", extra={"error": str(error)})
            self._is_answered = False
            if not error.is_final:
                self._state.repeat_steps()
            return error.is_final
        if not self._is_answered:
            logger.warning("operator reachable again")
        self._is_answered = True
        if answer.order is protocol.Order.STOP:
            self._state.revoke(answer.reason)
        self._state.request_stacks(answer.stacks)
        # A pre-run ends once its profile is stored, which a heartbeat returns.
        stated = None if self._pre_run else answer.interval_s
        self._interval_s = stated or protocol.HEARTBEAT_INTERVAL_S
        return True

    def _hand_over(self) -> None:
        """Send each rank's recording once; one that is refused is dropped and logged.

        In a pre-run each is sent until the operator revokes the attempt, as it has stored those of
        all ranks: an operator that restarts earlier has lost them.
        """
        try:
            found = sorted(self._folder.glob(profile.FILES))
        except OSError as error:
            logger.warning("recordings cannot be listed", extra={"error": str(error)})
            return
        for path in found:
            try:
                part = profile.recorded(path.read_bytes())
                handover = profile.Handover(self._member, part)
                _post(
                    self._operator, self._state, "/v1/profile", handover, protocol.HeartbeatAnswer
                )
                if self._pre_run:
                    continue
            except endpoint.UnreachableError:
                return
            except endpoint.RefusedError as refused:
                if not refused.is_final:
                    return
                logger.warning("recording refused", extra={"error": str(refused)})
                self._state.unrecorded = f"the recording was refused: {refused}"
            except (OSError, protocol.ProtocolError) as error:
                logger.warning("recording dropped", extra={"error": str(error)})
                self._state.unrecorded = f"the recording cannot be sent: {error}"
            with contextlib.suppress(OSError):  # It is sent again, which changes nothing.
                path.unlink(missing_ok=True)


class CommitDesk:
    """Handles the requests of rank 0's checkpointer, in one thread."""

    def __init__(self, pod: environment.Pod, state: LauncherState) -> None:
        self._operator = endpoint.Endpoint(pod.operator_url, pod.token_file, pod.authorities)
        self._member = pod.member
        self._state = state

    def close(self) -> None:
        """Close the connection to the operator."""
        self._operator.close()

    def answer(self, request: channel.Request) -> channel.Permission:
        """Record a report; send a commit to the operator."""
        self._state.record(request)
        if request.commit_step is None:
            return channel.Permission(granted=True, confirmed=True)
        return self._permission(protocol.Commit(self._member, request.commit_step))

    def _permission(self, commit: protocol.Commit) -> channel.Permission:
        """The operator's response within channel.COMMIT_DEADLINE_S, else the permission to go on.

        Going on does no harm: what a revoked attempt commits is above the step up to which later
        attempts read it, unless its script went back.
        """
        state, why = self._state, ""
        deadline = time.monotonic() + channel.COMMIT_DEADLINE_S
        while state.revoked is None and (left_s := deadline - time.monotonic()) > 0:
            timeout_s = min(left_s, pacing.TIMEOUT_S)
            try:
                answer = _post(
                    self._operator, state, "/v1/commit", commit, protocol.CommitAnswer, timeout_s
                )
            except (endpoint.UnreachableError, endpoint.RefusedError) as error:
                why = str(error)
                if error.is_final:
                    break
                time.sleep(min(_retry_s(), left_s))
            else:
                if answer.granted:
                    return channel.Permission(granted=True, confirmed=True)
                state.revoke(answer.reason)
        if state.revoked is not None:
            return channel.Permission(granted=False, confirmed=True, reason=state.revoked)
        logger.warning(
            "commit without response, going on", extra={"step": commit.step, "error": why}
        )
        reason = protocol.fitted(why, protocol.SENTENCE_BYTES_MAX)
        return channel.Permission(granted=True, confirmed=False, reason=reason)


def _post(
    operator: endpoint.Endpoint,
    state: LauncherState,
    path: str,
    message: protocol.Message | profile.Handover,
    kind: type[Reply],
    timeout_s: float = pacing.TIMEOUT_S,
) -> Reply:
    """The operator's response. Raises UnreachableError, or RefusedError: 409 revokes the
    attempt."""
    try:
        return operator.post(path, message, kind=kind, timeout_s=timeout_s)
    except endpoint.RefusedError as refused:
        if refused.status == HTTPStatus.CONFLICT:
            state.revoke(refused.reason)
        raise


def _retry_s() -> float:
    return random.uniform(RETRY_S / 2, RETRY_S)  # noqa: S311  # spreads retries
