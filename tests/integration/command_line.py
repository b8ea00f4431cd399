"""``railwright`` as a person runs it on a site's cluster."""

from __future__ import annotations

import os
import subprocess
import sys

from integration.operator_site import Site


def topology(site: Site, *arguments: str) -> str:
    """What ``railwright topology`` prints."""
    command = [sys.executable, "-m", "railwright_cli", "topology", *arguments]
    environment = {**os.environ, "KUBECONFIG": str(site.plane.kubeconfig)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
