"""What ``launch`` runs, in a Python that it has chosen.

Lies beside the copied package, so that Python finds ``railwright`` without any path being set.
"""

from __future__ import annotations

import sys

from railwright import launcher

if __name__ == "__main__":
    sys.exit(launcher.main())
