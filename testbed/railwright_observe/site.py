"""A testbed with Railwright as pods, and a Prometheus that scrapes them and serves the page."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from railwright_dashboards.generate import FOLDER
from railwright_observe import page
from railwright_testbed import ControlPlane, Testbed, deployment, example_job, prometheus
from railwright_testbed.prometheus import Prometheus

NAME = "observe"
TARGETS_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class Site:
    """What runs."""

    bed: Testbed
    prometheus: Prometheus

    @property
    def address(self) -> str:
        """Of the page."""
        return f"{self.prometheus.url}/user/"


@contextmanager
def running(built: Path, *, interval_s: int = page.SCRAPE_INTERVAL_S) -> Iterator[Site]:
    """Everything, with this built page, while in the block."""
    with (
        tempfile.TemporaryDirectory(prefix="railwright-observe-") as name,
        Testbed.start(NAME, example_job.RACKS, gpus_per_node=example_job.GPUS_PER_NODE) as bed,
    ):
        folder = Path(name)
        deployment.load(bed, folder)
        deployment.install(bed.control_plane)
        with _scraping(bed.control_plane, built, folder, interval_s=interval_s) as server:
            yield Site(bed, server)


@contextmanager
def _scraping(
    plane: ControlPlane, built: Path, folder: Path, *, interval_s: int
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the pods of Railwright as they come and go, and serves the built
    page below /user; its files are written into the folder."""
    assets = folder / "page"
    scraped = [
        {
            **prometheus.authorized(each, deployment.metrics_reader(plane, each), folder),
            "scrape_interval": f"{interval_s}s",
            "scrape_timeout": f"{interval_s}s",
            "file_sd_configs": [{"files": [str(_targets(folder, each))]}],
        }
        for each in deployment.SCRAPED
    ]
    server = Prometheus(scraped, rules=FOLDER / "rules.yaml", assets=assets)
    page.write(built, assets, prometheus=server.url, interval_s=interval_s)
    with _followed(plane, folder), server:
        yield server


@contextmanager
def _followed(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Keep the files of targets as the pods are, while in the block."""
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(TARGETS_INTERVAL_S):
            # The next time is soon.
            with contextlib.suppress(subprocess.SubprocessError):
                _write_targets(plane, folder)

    _write_targets(plane, folder)
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _write_targets(plane: ControlPlane, folder: Path) -> None:
    for each in deployment.SCRAPED:
        path = _targets(folder, each)
        whole = path.with_suffix(".whole")
        whole.write_text(json.dumps(deployment.scrape_targets(plane, each)))
        whole.rename(path)


def _targets(folder: Path, process: str) -> Path:
    return folder / f"{process}.json"
