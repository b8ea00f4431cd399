"""``docs/reference/exit-codes.md``, made from the code: ``make generate`` writes it.

The codes and their texts are constants of the modules that exit with them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from architecture import constants, tree
from architecture.constants import Constant
from architecture.markdown import seconds, table
from railwright_cli.__main__ import ENDS
from railwright_scheduler.attempt import assessment, causes
from railwright_scheduler.attempt.causes import CauseCode

PAGE = tree.ROOT / "docs/reference/exit-codes.md"

LAUNCHER, PROCESS = "railwright.launcher", "railwright_process.lifecycle"
AGENT, COMMANDS = "railwright_agent.__main__", "railwright_cli.errors"

HEAD = ("code", "meaning")
CAUSES = "../glossary.md#why-an-attempt-ended"

TITLE = """# Exit codes

## Ranks

The exit code of a training pod, and `status.lastTermination.exitCode` of its job, is that of the \
first rank that failed, or 128 plus the number of the signal that ended it. Railwright reads an \
exit code so:
"""

LAUNCHERS = """
## The launcher

The launcher runs first in each training pod. If no rank failed, its own exit code is one of \
these. They end the attempt like the exit code of a rank. If a script exits with the same number, \
the message of `status.lastTermination` shows the difference.
"""

PROCESSES = """
## Operator and controllers

The kubelet starts a container again that exits, whatever its code.
"""

AGENTS = """
## The node agent

`python -m railwright_agent` exits with:
"""

CLI = """
## The command line

`railwright` and `kubectl railwright` exit with:
"""


def rendered() -> str:
    """The text of the page."""
    return "".join(
        [
            TITLE,
            _ranks(),
            LAUNCHERS,
            _codes(LAUNCHER),
            PROCESSES,
            _codes(PROCESS),
            AGENTS,
            table(HEAD, [("0", "Done."), *_rows(_exits(AGENT))]),
            CLI,
            cli_codes(),
        ]
    )


def cli_codes() -> str:
    """The exit codes of the command line, also for its own page."""
    first = ("0", "Done. With `--watch` or `--follow`: the job succeeded.")
    interrupted = (str(128 + signal.SIGINT), "Ctrl-C.")
    ends = sorted(ENDS)
    codes = ", ".join(str(128 + each) for each in ends)
    ended = (codes, f"{' or '.join(each.name for each in ends)} ended the command.")
    return table(HEAD, [first, *_rows(_exits(COMMANDS)), interrupted, ended])


def _ranks() -> str:
    killed, stopped = 128 + signal.SIGKILL, assessment.STOP_SIGNALS
    failed, memory = _cause(CauseCode.RANK_FAILED), _cause(CauseCode.OUT_OF_MEMORY)
    wait = seconds(assessment.REMOVAL_S)
    rows = [
        ("0", "The rank is done. The job has succeeded once every rank of every role is done.", ""),
        ("1 to 127", "The rank failed.", failed),
        (
            str(killed),
            "The rank was ended by SIGKILL. If the kernel killed it for memory, the cause is the "
            "second one.",
            f"{failed}, {memory}",
        ),
        (
            ", ".join(map(str, stopped)),
            f"The rank was ended by {', '.join(stopped.values())}. For {wait} the operator waits "
            "whether its pod was evicted or deleted. Otherwise the rank failed.",
            f"{_cause(CauseCode.POD_EVICTED)}, {_cause(CauseCode.POD_DELETED)}, {failed}",
        ),
        (
            "other codes from 129",
            "The rank was ended by the signal with this number less 128.",
            failed,
        ),
    ]
    lost = (
        "\nIf a node is lost or a pod is gone, that is the cause, whatever the exit codes of other "
        f"ranks: they often fail with it. [All causes]({CAUSES}).\n"
    )
    return table(("exit code of a rank", "meaning", "cause"), rows) + lost


def _cause(code: CauseCode) -> str:
    budget = "spends the budget" if code in causes.COUNTED else "keeps the budget"
    return f"`{code}` ({budget})"


def _codes(module: str) -> str:
    return table(HEAD, _rows(_exits(module)))


def _exits(module: str) -> list[Constant]:
    found = constants.documented(module, "EXIT_")
    return [each for each in found if isinstance(each.value, int)]


def _rows(exits: Iterable[Constant]) -> list[tuple[str, str]]:
    return [(str(each.value), each.text) for each in exits]
