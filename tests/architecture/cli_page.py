"""``docs/cli.md``, made from the code: ``make generate`` writes it.

The help of each command is what ``railwright COMMAND --help`` prints.
"""

from __future__ import annotations

import contextlib
import io
import os
from unittest import mock

from architecture import exit_codes_page, tree
from fixtures.command import run
from railwright_cli.__main__ import COMMANDS

PAGE = tree.ROOT / "docs/cli.md"

HEAD = """# The command line

`railwright` answers what a user of jobs asks every day. It reads and writes the same objects as \
kubectl, with your kubeconfig and your rights. Users of Slurm find their commands [here](slurm.md).

## Install

In a checkout of this repository, with Python 3.11 or newer:

```
$ python3 -m venv ~/.local/share/railwright
$ ~/.local/share/railwright/bin/pip install '.[cli]'
$ export PATH=~/.local/share/railwright/bin:$PATH
$ railwright --install-completion
```

The package also has the programs `kubectl-railwright` and `kubectl_complete-railwright`: with \
both on the PATH, `kubectl railwright queue` works, and so does kubectl's completion.

## What the commands share

- A job is named `NAME`, in the namespace of the context or of `--namespace`, or `NAMESPACE/NAME`.
- With `-o`, `json` and `yaml` are for programs; times are in ISO 8601. `-o wide` adds columns to \
`queue` and `nodes`. Of `status`, `why`, `info` and `doctor` it changes nothing, as `kubectl get` \
accepts it for kinds without more columns; the other commands refuse it, as `kubectl create` and \
`kubectl delete` do. `submit`, `cancel`, `suspend` and `resume` print a document for each job, and \
with `-o name` its name as kubectl does.
- Results are on stdout, everything else is on stderr. Without a terminal nothing is redrawn or \
coloured, and `NO_COLOR` is respected.
- What takes longer than two seconds, such as a list of the API server or a prediction, shows its \
progress, and the time that remains where there is a number to estimate it from. Of jobs that have \
not ended, and of pods that run, the API server does not say how many there are: the time is then \
an upper bound, from the number of all.
- What you may not read is shown as `-`, or null, and named on stderr. `info`, `nodes` and \
`topology` need the ClusterRole `railwright-cluster-view`. `railwright-positions` adds the \
positions of `queue` and `why`, and `railwright-free-devices` what is free in `info`, `nodes`, \
`why` and `submit --dry-run` ([who has them](install.md#give-users-rights)).
- If Railwright is not in `railwright-system`: `doctor --system-namespace NAME`, and \
`RAILWRIGHT_NAMESPACE=NAME railwright topology`.
"""

EXIT_CODES = """
The exit codes:
"""


def rendered() -> str:
    """The text of the page."""
    commands = (f"\n## {name}\n\n```\n{_help(name)}\n```\n" for name in COMMANDS)
    return "".join((HEAD, EXIT_CODES, exit_codes_page.cli_codes(), *commands))


def _help(name: str) -> str:
    printed = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}), contextlib.redirect_stdout(printed):
        assert run(name, "--help") == 0
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
