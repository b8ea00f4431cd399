"""The command of a training pod: ``python3 /railwright/launch.py -- python train.py``.

Lies beside the copied package, so that Python finds ``railwright`` without any path being set.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # the user's image may bring any Python
    sys.exit("railwright: Python 3.11 or newer is needed, this is " + sys.version.split()[0])

from railwright import launcher

if __name__ == "__main__":
    sys.exit(launcher.main())
