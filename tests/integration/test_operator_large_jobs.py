"""Jobs whose specs are large, or nested deeply, beside others that start as usual."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from fixtures import shell
from integration import manifests, operator_site
from integration.operator_site import Floor, Site
from railwright_api import names, routes
from railwright_kube.pages import Pager
from railwright_kube.projections import Undeclared
from railwright_operator import metrics
from railwright_operator.watch import job_objects
from railwright_operator.watch.job_objects import JOBS, SPEC_BYTES_MAX
from railwright_testbed import ControlPlane, waiting

NOTE = "x" * 32_000


def notes(count: int) -> dict[str, str]:
    """Annotations of the pods with so many times 32,000 characters."""
    return {f"note-{number}": NOTE for number in range(count)}


def test_a_job_above_the_bound_waits_with_its_size(floor: Floor) -> None:
    job = floor.apply("large", nodes=1, annotations=notes(SPEC_BYTES_MAX // len(NOTE) + 1))
    message = job.until_reason("TooLarge", deadline_s=10)["message"]
    assert (
        "bytes as JSON, at most 262,144 are taken: spec.roles[0].template.metadata.annotations"
        in message
    )
    floor.apply("small", nodes=1).until_bound()
    assert job.status()["phase"] == "Queued"
    assert not job.pods()


def test_a_job_that_grew_too_large_keeps_its_pods_at_take_over(site: Site, floor: Floor) -> None:
    """It is held as what accounts for it: its pods stay, and their loss is noticed."""
    job = floor.apply("grows", nodes=2, annotations=notes(7))
    nodes = job.until_nodes()
    profile = {"profile": "x" * 60_000}
    job.patch({"workload": manifests.PARALLEL | {"parallelism": {"data": 2}} | profile})
    epoch = site.ledger()["spec"]["epoch"]
    operator_site.start_again(site)
    waiting.until(lambda: site.ledger()["spec"]["epoch"] > epoch, "a new leader", deadline_s=60)
    floor.apply("small", nodes=1).until_bound()
    assert job.bound() == dict(enumerate(nodes))
    pod = job.pods()[0]["metadata"]["name"]
    site.plane.kubectl("-n", floor.name, "delete", "pod", pod, "--wait=false")
    status = job.until_reason("TooLarge", deadline_s=60)
    assert (status["endedAttempt"], status["lastTermination"]["cause"]) == (1, "PodDeleted")


DEPTH = 3_000


@pytest.fixture
def nested(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """The name of a job with a volume that is nested deeply. It goes at the end: others list."""
    manifest = json.dumps(manifests.job("nested", pod={"volumes": [{"name": "v", "deep": 0}]}))
    deep = '{"a":' * DEPTH + "1" + "}" * DEPTH
    text = manifest.replace('"deep": 0', f'"deep": {deep}')
    control_plane.kubectl("-n", namespace, "create", "-f", "-", stdin=text)
    yield "nested"
    control_plane.kubectl("-n", namespace, "delete", "tj", "nested")


async def test_a_job_nested_deeply_keeps_no_other_from_being_listed(
    control_plane: ControlPlane, namespace: str, nested: str
) -> None:
    async with shell.api(shell.connect(control_plane)) as api:
        path = routes.kind(names.TRAINING_JOBS, namespace)
        for name in ("first", "second"):
            await api.create(path, manifests.job(name))
        watch = metrics.Metrics(CollectorRegistry()).watch
        pager = Pager(api, path, JOBS, metrics=watch)
        found = [JOBS.listed(item) async for page in pager.pages() for item in page.items]
    jobs = [job_objects.parse(each) for each in found if not isinstance(each, Undeclared)]
    deep = {str(job.raw["metadata"]["name"]): job.too_deep for job in jobs}
    assert deep == {"first": False, nested: True, "second": False}
