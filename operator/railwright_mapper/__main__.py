"""One process of the mapper: it reads requests from its input, and answers each on its output.

A mapping that fails ends the process, as does one that takes too much memory or time: the operator
starts another, so nothing of a failure is left for the next request.
"""

from __future__ import annotations

import resource
import signal
import sys
import traceback
from pathlib import Path
from types import TracebackType

from railwright_mapper.messages import FAILURE_MAX, READY, Reply, decode_request, encode_reply
from railwright_scheduler.mapping.gang_mapping import map_ranks

MEMORY_BYTES_MAX = 512 << 20
"""Of data, by which the kernel refuses more. A gang of 2,000 nodes takes a tenth."""

ORPHANED_S = 60.0
"""The operator ends a mapping long before; without an operator it ends by itself."""


def main() -> None:
    """Answer requests until there are no more."""
    sys.excepthook = _send_failure
    _bound()
    _send(READY)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_REAL, ORPHANED_S)
        number, request = decode_request(line)
        found = map_ranks(request)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        _send(encode_reply(Reply(number, found)))


def _bound() -> None:
    """Bound the memory, and be the first to go where a container has too little of it. Open nothing
    from now on: no connection, and not the operator's token, which is in the same container. So
    a failure has the numbers of its lines, and not their text. A terminal's interrupt is for the
    operator."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    Path("/proc/self/oom_score_adj").write_text("1000")
    # Of descriptors; those that it has stay.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _send_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """The last answer, as an exception ends the process: the operator logs it."""
    failure = "".join(traceback.format_exception(kind, error, trace))
    _send(encode_reply(Reply(failure=failure[-FAILURE_MAX:])))


def _send(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
