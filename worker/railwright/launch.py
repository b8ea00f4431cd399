"""What ``launch`` runs: the launcher, in this Python or in the interpreter that lies beside it.

Lies beside the copied package, so that Python finds ``railwright`` without any path being set. Any
Python 3 must be able to read it.
"""

import os
import sys

INTERPRETER = "RAILWRIGHT_INTERPRETER"
LEAST = (3, 11)


def use_own_interpreter(reason: str) -> None:
    """Start again in the interpreter that the launcher brought, which is tried last."""
    launch = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch")
    if os.environ.get(INTERPRETER) or not os.path.exists(launch):
        sys.exit("railwright: " + reason)
    os.environ[INTERPRETER] = "own"
    os.execv(launch, [launch, *sys.argv[1:]])  # noqa: S606  the arguments of the pod's own command


if sys.version_info < LEAST:
    use_own_interpreter("Python 3.11 or newer is needed, this is " + sys.version.split()[0])
try:
    from railwright import launcher
except ImportError as error:
    use_own_interpreter("this Python lacks a part of its standard library: " + str(error))

if __name__ == "__main__":
    sys.exit(launcher.main())
