"""A simulated InfiniBand fabric, and the real tool that looks at it.

ibsim answers the tool's packets; the tool itself is the one that sites run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from railwright_testbed import waiting

DEADLINE_S = 60.0
# Adapters and switches, and ports of all of them.
SIZES = ("-N", "20000", "-S", "2000", "-P", "200000")


def discovered(netfile: str, folder: Path) -> str:
    """What ``ibnetdiscover`` prints of this fabric; CalledProcessError when it fails."""
    plan, log = folder / "net", folder / "ibsim.log"
    plan.write_text(netfile)
    named = {**os.environ, "IBSIM_SOCKNAME": f"railwright-{os.getpid()}"}
    with log.open("wb") as told:
        simulator = subprocess.Popen(
            ["ibsim", "-s", "-n", *SIZES, str(plan)],
            env=named,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
        )
    try:
        waiting.until(
            lambda: "MaxMcastCap" in log.read_text(), "ibsim", deadline_s=10, evidence=log.read_text
        )
        answer = subprocess.run(
            ["ibsim-run", "ibnetdiscover"],
            env=named,
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE_S,
        )
    finally:
        simulator.terminate()
        simulator.wait(DEADLINE_S)
    return answer.stdout
