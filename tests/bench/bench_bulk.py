"""What many at once cost a leader: large jobs at its take-over, and many attempts lost together.

Take-over: 1,000 jobs with specs of the largest size that is taken and 50 jobs above it wait while
no operator runs. One is started: the time to its first decision, and the most memory it has held,
count. Most of that time is the API server's, so a plain client lists the same jobs before, in pages
of the same sizes, and keeps nothing of them.

Loss: on another cluster, with no operator, 2,000 jobs are given the status of a run on eight nodes
that are gone, and one is started: the time until every attempt is revoked counts.

Progress and each part's figures go to stderr, one JSON object to stdout; the command fails where a
figure is above its bound or a part does not complete.
"""

from __future__ import annotations

import argparse
import asyncio
import http
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp
import orjson

from bench import bars, gang_site
from bench.gang_site import GangSite, Json, log_progress
from railwright_api import names
from railwright_kube import body_limits, pages, projections
from railwright_operator.watch.job_objects import SPEC_BYTES_MAX
from railwright_testbed import waiting
from railwright_testbed.api_client import ApiError
from railwright_testbed.operator_process import OperatorProcess

logger = logging.getLogger(__name__)

JOBS, TOO_LARGE, LOST = 1_000, 50, 2_000
NODES, GANG = 8, 8
DEFAULTS_SIZE = 256
"""More than what the API server fills in of a spec."""
CONCURRENCY = 32
DEADLINE_S = 300.0
BOUNDS = {"takeover_seconds": 20.0, "rss_mib": 1024.0, "all_revoked_seconds": 60.0}
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help="0 leaves the take-over out")
    parser.add_argument("--lost", type=int, default=LOST, help="0 leaves the loss out")
    asked = parser.parse_args()
    counts = {_taken_over: asked.jobs, _revoked: asked.lost}
    parts = [_measured(part, count) for part, count in counts.items() if count]
    figures = {name: figure for part in parts for name, figure in part.items()}
    bounds = {name: bound for name, bound in BOUNDS.items() if name in figures}
    return int(bars.publish(figures, at_most=bounds) or not all(parts))


def _measured(part: Callable[[GangSite, int], dict[str, float]], count: int) -> dict[str, float]:
    """The figures of one part on a cluster of its own; none if it does not complete."""
    figures: dict[str, float] = {}
    try:
        with gang_site.opened(NODES) as site:
            figures = part(site, count)
    except Exception:
        logger.exception("not completed")
    log_progress(f"{figures}")
    return figures


def _taken_over(site: GangSite, jobs: int) -> dict[str, float]:
    for namespace in ("large", "bench"):
        site.namespace(namespace)
    log_progress(f"{jobs} jobs of {SPEC_BYTES_MAX} bytes, {TOO_LARGE} above")
    asyncio.run(_send(site, "POST", "large", (_large(n, SPEC_BYTES_MAX) for n in range(jobs))))
    above = (_large(jobs + number, 4 * SPEC_BYTES_MAX) for number in range(TOO_LARGE))
    asyncio.run(_send(site, "POST", "large", above))
    asyncio.run(_send(site, "POST", "bench", [gang_site.job("bench", "first", nodes=1)]))
    _until(lambda: _is_caught_up(site), "the API server's cache has all jobs")
    raw_list_s = asyncio.run(_list_raw(site))
    log_progress(f"a plain client lists them in {raw_list_s:.1f} s; an operator starts")
    started_s = time.monotonic()
    with _operator(site) as operator:
        _until(lambda: _status(site, "bench", "first").get("attempt") == 1, "the first decision")
        taken_over_s = time.monotonic() - started_s
        log_progress(f"taken over in {taken_over_s:.1f} s")
        names_above = [f"large-{jobs + number}" for number in range(TOO_LARGE)]
        _until(
            lambda: all(
                _status(site, "large", name).get("reason") == "TooLarge" for name in names_above
            ),
            "every job above the bound says so",
        )
        _until(
            lambda: _status(site, "large", "large-0").get("reason") == "NeverFits",
            "a large job says that it never fits",
        )
        rss_mib = gang_site.resident_mib(operator)
    return {
        "large_jobs": jobs,
        "takeover_seconds": round(taken_over_s, 2),
        "raw_list_seconds": round(raw_list_s, 2),
        "takeover_ratio": round(taken_over_s / raw_list_s, 2),
        "rss_mib": round(rss_mib),
    }


def _is_caught_up(site: GangSite) -> bool:
    """Whether the API server's own cache has the job that was written last.

    It falls behind while large jobs are written, and until then answers pages of lists with 504.
    """
    version = site.get(f"{_jobs_path('bench')}/first")["metadata"]["resourceVersion"]
    query = f"limit=1&resourceVersionMatch=NotOlderThan&resourceVersion={version}"
    try:
        return bool(site.get(f"{_jobs_path('large')}?{query}")["items"])
    except ApiError as error:
        if error.status != http.HTTPStatus.GATEWAY_TIMEOUT:
            raise
        return False


async def _list_raw(site: GangSite) -> float:
    """Seconds that a list of all jobs takes, in pages of the sizes that the operator asks for."""
    url = f"{site.plane.url}/apis/{names.API_VERSION}/{names.TRAINING_JOBS}"
    objects, following = pages.OBJECTS_FIRST, ""
    started_s = time.monotonic()
    async with site.session() as client:
        while True:
            query = {"limit": str(objects)} | ({"continue": following} if following else {})
            headers = {"Accept-Encoding": "identity"}
            async with client.get(url, params=query, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                body = await answer.read()
            if len(body) <= body_limits.BODY_BYTES_MAX // 4:
                objects = min(pages.OBJECTS_MAX, 2 * objects)
            following = projections.page(body).following
            if not following:
                return time.monotonic() - started_s


def _revoked(site: GangSite, lost: int) -> dict[str, float]:
    site.namespace("lost")
    log_progress(f"{lost} jobs that ran on {GANG} nodes each, which are gone")
    jobs = [gang_site.job("lost", f"lost-{number}", nodes=GANG) for number in range(lost)]
    asyncio.run(_send(site, "POST", "lost", jobs))
    site.request("DELETE", f"{POLICIES}/records.{names.GROUP}")
    _until(lambda: _may_forge(site), "no policy in force")
    asyncio.run(_send(site, "PATCH", "lost", (_ran(number) for number in range(lost))))
    stored = site.get(_jobs_path("lost"))["items"]
    placed = [_placement(job["metadata"]) for job in stored]
    asyncio.run(_send(site, "POST", "lost", placed, plural=names.PLACEMENTS))
    log_progress("an operator starts")
    started_s = time.monotonic()
    with _operator(site):

        def revoked() -> bool:
            found = site.get(_jobs_path("lost"))["items"]
            ended = [job["status"].get("endedAttempt", 0) for job in found].count(1)
            log_progress(f"  {ended} of {lost} after {time.monotonic() - started_s:.1f} s")
            return bool(ended == lost)

        _until(revoked, "every attempt revoked")
        revoked_s = time.monotonic() - started_s
    return {"lost_attempts": lost, "all_revoked_seconds": round(revoked_s, 2)}


def _operator(site: GangSite) -> OperatorProcess:
    return OperatorProcess(
        site.plane, name="operator", host="127.0.0.1", launcher_image="example.com/launcher"
    )


def _until(holds: Any, what: str) -> None:
    waiting.until(holds, what, deadline_s=DEADLINE_S, pause_s_longest=1.0)


def _large(number: int, size: int) -> Json:
    """A job that waits: no node has what it selects. Half of its spec are small objects."""
    body = gang_site.job("large", f"large-{number}", nodes=1)
    spec = body["spec"]["roles"][0]["template"]["spec"]
    spec["nodeSelector"] = {"example.com/none": "here"}
    source = {"secret": {"name": "some-secret"}}
    count = size // 2 // (len(orjson.dumps(source)) + 1)
    spec["volumes"] = [{"name": "many", "projected": {"sources": [source] * count}, "note": ""}]
    missing = size - DEFAULTS_SIZE - len(orjson.dumps(body["spec"]))
    spec["volumes"][0]["note"] = "x" * missing
    return body


def _ran(number: int) -> Json:
    status = {"phase": "Running", "attempt": 1, "endedAttempt": 0, "nodes": GANG}
    return {"metadata": {"name": f"lost-{number}"}, "status": status}


def _placement(job: Json) -> Json:
    nodes = [f"gone-{job['name']}-{rank}.example.com" for rank in range(GANG)]
    spec = {"jobUID": job["uid"], "attempt": 1, "epoch": 1, "nodes": nodes, "reason": "first start"}
    metadata = {"name": names.placement_name(job["name"], 1)}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Placement",
        "metadata": metadata,
        "spec": spec,
    }


def _may_forge(site: GangSite) -> bool:
    try:
        asyncio.run(_send(site, "PATCH", "lost", [_ran(0)]))
    except AssertionError:
        return False
    return True


def _status(site: GangSite, namespace: str, name: str) -> Json:
    status: Json = site.get(f"{_jobs_path(namespace)}/{name}").get("status", {})
    return status


def _path(plural: str, namespace: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{plural}"


def _jobs_path(namespace: str) -> str:
    return _path(names.TRAINING_JOBS, namespace)


async def _send(
    site: GangSite,
    method: str,
    namespace: str,
    objects: Iterable[Json],
    *,
    plural: str = names.TRAINING_JOBS,
) -> None:
    """Create these objects, or patch their statuses, so many at a time."""
    slots = asyncio.Semaphore(CONCURRENCY)
    kind = "application/json" if method == "POST" else "application/merge-patch+json"
    url = site.plane.url + _path(plural, namespace)

    async def one(client: aiohttp.ClientSession, body: Json) -> None:
        where = url if method == "POST" else f"{url}/{body['metadata']['name']}/status"
        async with slots:
            data = orjson.dumps(body)
            headers = {"Content-Type": kind}
            async with client.request(method, where, data=data, headers=headers) as answer:
                assert answer.status in (200, 201), await answer.text()

    async with site.session() as client:
        await asyncio.gather(*(one(client, body) for body in objects))


if __name__ == "__main__":
    sys.exit(main())
