"""What ``launch`` runs, in a Python that it has chosen: the one in which ``--check`` succeeds.

Lies beside the copied package. Any Python 3 must be able to read it.
"""

import os
import signal
import sys

# The launcher takes them up when its modules are there.
signal.pthread_sigmask(
    signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
)

# With PYTHONSAFEPATH, Python does not search the folder of its script.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if sys.version_info < (3, 11):  # noqa: UP036  the user's image may bring any Python
    sys.exit("railwright: Python 3.11 or newer is needed, this is " + sys.version.split()[0])

from railwright import launcher  # noqa: E402  it has to be found first

if __name__ == "__main__":
    sys.exit(0 if sys.argv[1:] == ["--check"] else launcher.main())
