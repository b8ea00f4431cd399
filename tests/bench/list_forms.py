"""What a list of all pods costs in JSON, as a multiple of the same list in protobuf."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.gang_site import GangSite
from railwright_kube import projections, protobuf
from railwright_kube.core_v1 import PodObject
from railwright_kube.projections import Projection, Undeclared
from railwright_operator.watch import records

ROUNDS = 3
PAGE = 500
"""Pods; the operator begins with as many."""

FORMS: dict[str, Projection[PodObject]] = {
    "json": projections.of(PodObject, "Pod"),
    "protobuf": protobuf.POD,
}


@dataclass(frozen=True, slots=True)
class ListCost:
    """Of one list: CPU of the API server, CPU until it is read as records, bytes, and all its
    time."""

    server_s: float
    reading_s: float
    size: int
    wall_s: float
    pods: int


async def json_over_protobuf(site: GangSite) -> dict[str, float]:
    """The median over rounds, in each of which one form follows the other."""
    async with site.session() as http:
        rounds = [
            {form: await _list(site, http, FORMS[form]) for form in FORMS} for _ in range(ROUNDS)
        ]
    assert len({cost.pods for each in rounds for cost in each.values()}) == 1

    def ratio(part: Callable[[ListCost], float]) -> float:
        ratios = (part(each["json"]) / part(each["protobuf"]) for each in rounds)
        return round(statistics.median(ratios), 2)

    return {
        "json_list_server_cpu_ratio": ratio(lambda cost: cost.server_s),
        "json_list_reading_cpu_ratio": ratio(lambda cost: cost.reading_s),
        "json_list_bytes_ratio": ratio(lambda cost: cost.size),
        "json_list_seconds_ratio": ratio(lambda cost: cost.wall_s),
    }


async def _list(
    site: GangSite, http: aiohttp.ClientSession, form: Projection[PodObject]
) -> ListCost:
    server_s, started_s = _server_cpu_s(site), time.monotonic()
    reading_s, size, pods, following = 0.0, 0, 0, ""
    while True:
        query = {"limit": str(PAGE), "continue": following}
        async with http.get(
            f"{site.plane.url}/api/v1/pods", params=query, headers={"Accept": form.accept}
        ) as answer:
            assert answer.status == 200, await answer.text()
            body = await answer.read()
        began_s = time.process_time()
        page = form.page(body)
        pods += len([_record(form, item) for item in page.items])
        reading_s += time.process_time() - began_s
        size += len(body)
        following = page.following
        if not following:
            wall_s = time.monotonic() - started_s
            return ListCost(_server_cpu_s(site) - server_s, reading_s, size, wall_s, pods)


def _record(form: Projection[PodObject], item: Any) -> object:
    found = form.listed(item)
    assert not isinstance(found, Undeclared), found.why
    return records.pod(found)


def _server_cpu_s(site: GangSite) -> float:
    text = site.plane.kubectl("get", "--raw", "/metrics")
    found = re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])
