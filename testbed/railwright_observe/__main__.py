"""`python -m railwright_observe [--pictures FOLDER]`: the dashboards on a local page.

Shows jobs with faults on five real nodes.
Runs until Ctrl-C, four hours at most, and removes all that it started.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from railwright_observe import page, pictures, scenario, site
from railwright_testbed import TestbedError, missing_for_real_nodes

EXIT_FAILED = 1
EXIT_IMPOSSIBLE = 3
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LIMIT_S = 4 * 3600.0
MARGIN_S = 30
"""Shown before the first job in a picture."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m railwright_observe", description=__doc__)
    parser.add_argument(
        "--pictures", type=Path, help="write a picture of each dashboard here, and end"
    )
    folder = parser.parse_args(arguments).pictures
    if missing := missing_for_real_nodes():
        print(f"error: missing for real nodes: {'; '.join(missing)}", file=sys.stderr)
        return EXIT_IMPOSSIBLE
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        _show(folder)
    except KeyboardInterrupt:
        _report("everything is removed")
    except TestbedError as error:
        _report(f"failed: {error}")
        return EXIT_FAILED
    return 0


def _show(folder: Path | None) -> None:
    _report("building the page (the first time, npm installs 500 MB: minutes)")
    built = page.build()
    if folder is not None:
        pictures.prepare()
    _report("starting Kubernetes, Railwright's pods, and Prometheus: two minutes")
    with site.running(built) as running:
        _report(f"the dashboards: {running.address}")
        _report(f"export KUBECONFIG={running.bed.control_plane.kubeconfig}")
        began_s = time.time()
        scenario.play(running.bed, _report)
        if folder is None:
            _report("all faults are caused; look around, apply jobs, and end this with Ctrl-C")
            time.sleep(LIMIT_S)
        else:
            _take_pictures(built, folder, running.address, began_s)
    _report("everything is removed")


def _take_pictures(built: Path, folder: Path, address: str, began_s: float) -> None:
    _report("taking pictures")
    folder.mkdir(parents=True, exist_ok=True)
    choices = {
        "start": str(1000 * (int(began_s) - MARGIN_S)),
        "end": str(1000 * int(time.time())),
        "refresh": "0s",
        "var-job_namespace": "default",
        "var-job_name": scenario.OBSERVED,
    }
    for empty in pictures.take(built, folder, address=address, choices=choices):
        _report(f"no data: {empty}")


def _report(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Once is enough: what runs from here on is the removal.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    _report("removing everything")
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
