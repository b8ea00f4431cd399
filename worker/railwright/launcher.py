"""The first process of a training pod: joins the job, runs the ranks, and reports their end.

Training does not depend on the operator: without it the start waits, and a started job goes on. The
exit code is the first failing rank's, 128 + number if a signal ended it, or one of those below.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from railwright import (
    channel,
    endpoint,
    environment,
    log_lines,
    memory,
    protocol,
    ranks,
    registration,
    reporting,
)

EXIT_REVOKED = 80
"""The attempt was revoked, or the operator refused the launcher."""

EXIT_BAD_ENVIRONMENT = 81
"""The launcher's environment is invalid; the message says why."""

EXIT_UNRECORDED = 82
"""A pre-run could not be recorded."""

EXIT_NOT_EXECUTABLE = 126
"""The command cannot be executed."""

EXIT_NOT_FOUND = 127
"""The command is not found."""

REPORT_S = 10.0
"""Of the time that a pod has from SIGTERM to SIGKILL, for the report after the ranks ended."""

FAILED_GRACE_S = 10.0
REVOKED_POLL_S = 0.5

TERMINATION_BYTES_MAX = 4096

OUTPUT_SETTLE_S = 0.3
OUTPUT_END_S = 2.0

logger = logging.getLogger(__name__)


class _TerminatedError(Exception):
    """A signal ended this process."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def main() -> int:
    """Run ``launch.py -- COMMAND...`` and return the exit code."""
    log_lines.to_stderr()
    try:
        command = _command(sys.argv[1:])
        pod = environment.pod(os.environ)
    except environment.BadEnvironmentError as error:
        return _end(
            protocol.Failure(rank=0, exit_code=EXIT_BAD_ENVIRONMENT, message=_sentence(error))
        )
    processes = ranks.Ranks()
    try:
        world = _join(pod)
        server = channel.ChannelServer()
    except registration.StoppedError as stopped:
        return _end(_own_end(pod, EXIT_REVOKED, stopped))
    except _TerminatedError as terminated:
        return _end(_own_end(pod, 128 + terminated.number, terminated))
    except (environment.BadEnvironmentError, OSError) as error:
        return _end(_own_end(pod, EXIT_BAD_ENVIRONMENT, error))
    try:
        return _train(pod, world, command, processes=processes, server=server)
    finally:
        server.close()


def _command(arguments: Sequence[str]) -> Sequence[str]:
    if len(arguments) < 2 or arguments[0] != "--":
        raise environment.BadEnvironmentError(f"seen {list(arguments)}, expected -- COMMAND...")
    return arguments[1:]


def _join(pod: environment.Pod) -> protocol.WorldInfo:
    try:
        operator = endpoint.Endpoint(pod.operator_url, pod.token_file, pod.authorities)
    except ValueError as error:
        raise environment.BadEnvironmentError(str(error)) from error
    with registration.reserve_port(pod.address) as reserved:
        port = reserved.getsockname()[1]
        world = registration.world(pod, operator, master_port=port, pause=_pause)
    operator.close()
    logger.info(
        "all nodes are there",
        extra={"attempt": pod.member.attempt, "world": world.world_size, "rank": world.first_rank},
    )
    return world


def _pause(timeout_s: float) -> None:
    """Wait; raises _TerminatedError on a signal to end."""
    number = ranks.wait(timeout_s)
    if number in ranks.ENDING:
        raise _TerminatedError(number)


def _train(
    pod: environment.Pod,
    world: protocol.WorldInfo,
    command: Sequence[str],
    *,
    processes: ranks.Ranks,
    server: channel.ChannelServer,
) -> int:
    environments = {
        world.first_rank + local_rank: environment.of_rank(
            pod, world, local_rank=local_rank, channel=server.folder, env=os.environ
        )
        for local_rank in range(pod.num_processes)
    }
    mine = range(world.first_rank, world.first_rank + pod.num_processes)
    state = reporting.LauncherState(pod.member, world, ranks=mine, folder=server.folder)
    failure = _started(processes, command, environments)
    processes.follow()
    desk = reporting.CommitDesk(pod, state)
    server.start(state.report, desk.answer)
    reporter = reporting.Reporter(pod, state, server.folder)
    reporter.start()
    if failure is None:
        failure = _supervise(pod, processes, state)
    else:
        state.ended(running=processes.running, failure=failure)
        processes.stop(signal.SIGKILL, grace_s=0.0)
    processes.end_strays()
    deadline_s = time.monotonic() + OUTPUT_END_S
    for rank_output in processes.outputs.values():
        rank_output.settle(deadline_s - time.monotonic())
    # Before the last heartbeat: the kubelet may lose patience while the operator does not answer.
    exit_code = _end(failure)
    state.ended(running=0, failure=failure)
    reporter.close()
    desk.close()
    return exit_code


def _started(
    processes: ranks.Ranks, command: Sequence[str], environments: dict[int, dict[str, str]]
) -> protocol.Failure | None:
    """Why the command cannot be run, in the words of a shell; None if it can."""
    try:
        processes.start(command, environments)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        return protocol.Failure(
            rank=min(environments) + processes.running,
            exit_code=EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE,
            message=_sentence(f"cannot run {command[0]}: {error.strerror}"),
        )
    return None


def _supervise(
    pod: environment.Pod, processes: ranks.Ranks, state: reporting.LauncherState
) -> protocol.Failure | None:
    """Wait for the end of the ranks; stop the others when one fails."""
    while processes.running:
        number = ranks.wait(REVOKED_POLL_S)
        if state.revoked is not None:
            processes.stop(signal.SIGTERM, grace_s=FAILED_GRACE_S)
            return _own_end(pod, EXIT_REVOKED, f"the attempt was revoked: {state.revoked}")
        if pod.pre_run and state.unrecorded:
            processes.stop(signal.SIGTERM, grace_s=FAILED_GRACE_S)
            return _own_end(pod, EXIT_UNRECORDED, state.unrecorded)
        if number in ranks.ENDING:
            grace_s = max(pod.grace_s - REPORT_S, pod.grace_s / 2)
            processes.stop(number, grace_s=grace_s)
            return _own_end(pod, 128 + number, _TerminatedError(number))
        for exit_ in processes.ended():
            if exit_.code != 0:
                failure = _failure(processes, exit_)
                state.ended(running=processes.running, failure=failure)
                processes.stop(signal.SIGTERM, grace_s=FAILED_GRACE_S)
                return failure
            state.ended(running=processes.running, rank=exit_.rank)
    return None


def _failure(processes: ranks.Ranks, exit_: ranks.Exit) -> protocol.Failure:
    output = processes.outputs[exit_.rank]
    output.settle(OUTPUT_SETTLE_S)
    killed = exit_.memory_kills > 0
    # A shell that ran the command ends with the code of its child.
    itself = killed and exit_.code == 128 + signal.SIGKILL
    # A rank that was not killed itself may have lost the processes that load its data.
    count = exit_.memory_kills
    others = f"since the start the kernel killed processes of its pod for memory: {count}"
    return protocol.Failure(
        rank=exit_.rank,
        exit_code=exit_.code,
        signal=exit_.signal,
        message=others if killed and not itself else None,
        last_lines=output.last_lines(),
        out_of_memory=itself,
        memory_limit=memory.read_limit(processes.memory) if killed else None,
    )


def _own_end(pod: environment.Pod, exit_code: int, why: object) -> protocol.Failure:
    """A failure of the launcher itself, reported as that of the first rank of its node."""
    return protocol.Failure(rank=pod.first_rank, exit_code=exit_code, message=_sentence(why))


def _sentence(why: object) -> str:
    return protocol.fitted(str(why), protocol.SENTENCE_BYTES_MAX)


def _end(failure: protocol.Failure | None) -> int:
    """Log the failure, write the termination message, and return the exit code."""
    if failure is None:
        return 0
    logger.error(
        "%s",
        failure.message or f"rank {failure.rank} failed",
        extra={"exit_code": failure.exit_code, "signal": failure.signal},
    )
    write_termination_message(environment.termination_file(os.environ), failure)
    return failure.exit_code


def write_termination_message(path: Path, failure: protocol.Failure) -> None:
    """Write the failure as one JSON object, with as many of its last lines as fit.

    So the cause reaches the pod's status without the operator. The kubelet makes the file, and
    keeps its first 4 KiB; where there is none, nothing is written.
    """
    while len(data := protocol.encode(failure)) > TERMINATION_BYTES_MAX:
        lines = failure.last_lines
        failure = dataclasses.replace(failure, last_lines=lines[len(lines) // 8 + 1 :])
    try:
        if path.exists():
            path.write_bytes(data)
    except OSError as error:
        logger.warning("termination message not written", extra={"error": str(error)})
