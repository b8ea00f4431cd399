"""Dashboards, alerts and the number of series: ``make check-observability``.

A real Prometheus scrapes the collectors of the operator and the controllers, which have values here
also of faults; ``tests/e2e/test_observe.py`` does the same with deployed pods. Progress goes to
stderr, one JSON object to stdout; the exit status is 1 if a figure misses its bar.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from architecture import tree
from bench import bars
from fixtures import alert_cases, queries, scraped_processes
from railwright_dashboards import rules
from railwright_dashboards.generate import DASHBOARDS
from railwright_testbed import TestbedError, waiting

JOBS = 100_000
DATA_DEADLINE_S = 60.0


def main() -> int:
    _log("queries")
    with scraped_processes.scraped() as prometheus:
        job = (scraped_processes.NAMESPACE, scraped_processes.JOB)
        every = list(queries.of_panels(*job))
        with contextlib.suppress(TestbedError):
            waiting.until(
                lambda: (
                    not queries.without_data(prometheus, *job)
                    and not queries.recordings_without_data(prometheus)
                ),
                "data",
                deadline_s=DATA_DEADLINE_S,
            )
        absent = queries.without_data(prometheus, *job)
        unrecorded = queries.recordings_without_data(prometheus)
    for each in (*absent, *unrecorded):
        _log(f"no data: {each}")
    _log("alerts")
    with tempfile.TemporaryDirectory() as folder:
        tested = alert_cases.run(Path(folder))
    runbooks = [alert for alert in rules.ALERTS if not (tree.ROOT / alert.runbook).exists()]
    _log(f"{JOBS} jobs")
    figures = {
        "dashboards": len(DASHBOARDS),
        "panels": sum(len(each.panels) for each in DASHBOARDS),
        "queries": len(every),
        "queries_with_data": len(every) - len(absent),
        "recordings": len(rules.RECORDINGS),
        "recordings_with_data": len(rules.RECORDINGS) - len(unrecorded),
        "alerts": len(rules.ALERTS),
        "alerts_tested": len(tested),
        "runbooks_missing": len(runbooks),
        "series_with_100k_names": scraped_processes.series_of_operator(
            scraped_processes.crowded(JOBS)
        ),
    }
    return bars.publish(
        figures,
        whole={
            "queries_with_data": "queries",
            "recordings_with_data": "recordings",
            "alerts_tested": "alerts",
        },
        at_most={
            "runbooks_missing": 0,
            "series_with_100k_names": scraped_processes.SERIES_MAX,
        },
    )


def _log(text: str) -> None:
    print(f"== {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
