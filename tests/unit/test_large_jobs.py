"""Jobs with large specs: what is held of them, and what becomes of those above the bound."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures import attempts, observing, reporting
from fixtures.reporting import Raw
from fixtures.shell import until
from railwright_kube import body_limits, projections
from railwright_kube.client import Api, Decode
from railwright_kube.pages import Pager
from railwright_kube.projections import Undeclared
from railwright_kube.reflector import Reflector
from railwright_operator import metrics
from railwright_operator.watch import job_objects
from railwright_operator.watch.job_objects import JOBS, SPEC_BYTES_MAX, JobObject
from railwright_operator.watch.jobs import Jobs
from railwright_operator.write.rendering import Rendering
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model import reasons

RUNS = {"phase": "Running", "attempt": 3, "endedAttempt": 2, "nodes": 2}


def job_of(size: int, *, name: str = "a", **more: Any) -> Raw:
    """A job whose spec has so many bytes of JSON, most of them in one variable."""
    resources = {"limits": {"nvidia.com/gpu": 8}}
    container = {"name": "train", "image": "image", "command": ["train"], "resources": resources}
    pod = {
        "containers": [container],
        "nodeSelector": {"kind": "h100"},
        "volumes": [{"name": "v", "note": ""}],
    }
    raw = reporting.raw_job(name, pod=pod, **more)
    left = size - len(orjson.dumps(raw["spec"]))
    raw["spec"]["roles"][0]["template"]["spec"]["volumes"][0]["note"] = "x" * left
    assert len(orjson.dumps(raw["spec"])) == size
    return raw


@pytest.fixture
def jobs() -> Jobs:
    return observing.jobs_cache()


def test_a_spec_of_the_largest_size_is_taken(jobs: Jobs) -> None:
    jobs.absorb(job_of(SPEC_BYTES_MAX))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.too_large is None
    assert cached.object.whole["spec"] == job_of(SPEC_BYTES_MAX)["spec"]
    assert cached.spec_hash != ""


def test_a_spec_above_the_bound_is_held_as_what_accounts_for_it(jobs: Jobs) -> None:
    jobs.absorb(job_of(SPEC_BYTES_MAX + 1, status=RUNS))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.too_large is not None
    assert len(cached.object.spec) < 1_000
    assert dict(cached.roles[0].per_pod) == {"nvidia.com/gpu": 8, "pods": 1}
    assert dict(cached.roles[0].selector) == {"kind": "h100"}
    assert (cached.record.phase, cached.record.attempt) == (Phase.RUNNING, 3)
    assert cached.spec_hash == ""
    assert jobs.why_unreadable("a-uid") is None


def test_sidecar_of_a_job_that_is_too_large_counts(jobs: Jobs) -> None:
    raw = job_of(SPEC_BYTES_MAX)
    pod = raw["spec"]["roles"][0]["template"]["spec"]
    side = {"name": "side", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 1}}}
    pod["initContainers"] = [side | {"restartPolicy": "Always"}]
    jobs.absorb(raw)
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.too_large is not None
    assert dict(cached.roles[0].per_pod) == {"nvidia.com/gpu": 9, "pods": 1}


def test_running_job_that_grows_keeps_what_it_does(jobs: Jobs) -> None:
    """A profile may be added while it runs. Hangs and checkpoints are those of the group that
    trains, and a pre-run goes on."""
    raw = job_of(300_000, status=RUNS)
    (worker,) = raw["spec"]["roles"]
    raw["spec"]["roles"] = [{**worker, "name": "evaluator"}, worker]
    profile = {"profile": "x" * 60_000}
    raw["spec"]["workload"] = {"role": "worker", "opaque": {}, "parallelism": {}} | profile
    raw["spec"]["profiling"] = {"preRun": "Auto"}
    jobs.absorb(raw)
    cached = jobs.get("a-uid")
    assert cached is not None, jobs.why_unreadable("a-uid")
    assert cached.too_large is not None
    assert cached.layout.training.group == "worker"
    assert cached.requested_pre_run is not None
    assert len(cached.object.spec) < 1_000


def test_reason_has_the_size_and_the_largest_part(jobs: Jobs) -> None:
    jobs.absorb(job_of(300_000))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.too_large is not None
    assert reasons.code(cached.too_large) == "TooLarge"
    assert cached.too_large.sentence() == (
        "the job's spec has 300,000 bytes as JSON, at most 262,144 are taken: "
        "spec.roles[0].template.spec.volumes[0].note has 299,736 of them; move what it holds to a "
        "ConfigMap, a volume or the image"
    )


def test_many_small_parts_are_named_by_what_holds_them(jobs: Jobs) -> None:
    values = [{"name": f"V{number}", "value": "x" * 2_000} for number in range(200)]
    jobs.absorb(reporting.raw_job("a", pod={"volumes": values}))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.too_large is not None
    assert cached.too_large.part == "spec.roles[0].template.spec.volumes"


def test_no_pod_is_made_of_a_job_that_is_too_large(jobs: Jobs) -> None:
    jobs.absorb(job_of(300_000))
    rendering = Rendering(jobs, launcher=reporting.LAUNCHER)
    for spec_hash in ("", "2-before"):
        entry = attempts.entry(job_uid="a-uid", state=EntryState.COMMITTING, spec_hash=spec_hash)
        assert rendering.pod(entry, 0) is None


def test_job_that_shrinks_below_the_limit_is_read(jobs: Jobs) -> None:
    jobs.absorb(job_of(300_000))
    newer = {"resourceVersion": "2", "generation": 2}
    jobs.absorb(job_of(10_000, metadata=newer))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.too_large is None
    assert cached.spec_hash != ""


def test_the_bound_is_on_plain_json() -> None:
    """The API server writes < as six characters."""
    raw = job_of(200_000)
    raw["spec"]["roles"][0]["template"]["spec"]["volumes"][0]["note"] = "<" * 100_000
    escaped = orjson.dumps(raw["spec"]).replace(b"<", b"\\u003c")
    found = listed(raw | {"spec": 0}, spec=escaped)
    assert len(escaped) > SPEC_BYTES_MAX
    assert found.too_large is None
    assert found.whole["spec"] == raw["spec"]


def listed(raw: Raw, *, spec: bytes) -> JobObject:
    """The job as a list brings it, with the spec as these bytes."""
    whole = orjson.dumps(raw).replace(b'"spec":0', b'"spec":' + spec)
    found = JOBS.listed(whole)
    assert isinstance(found, job_objects.TrainingJob)
    return job_objects.parse(found)


def test_a_watch_and_an_answer_give_the_same_object() -> None:
    noise = {
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        "labels": {"team": "a"},
    }
    raw = job_of(2_000, metadata=noise, status=RUNS)
    found = listed(raw | {"spec": 0}, spec=orjson.dumps(raw["spec"]))
    assert found == job_objects.answered(raw)
    metadata = found.raw["metadata"]
    assert metadata.keys().isdisjoint({"managedFields", "annotations", "labels"})
    assert "deletionTimestamp" not in metadata


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("depth", [300, 1_030, 9_000])
@pytest.mark.parametrize("size", [10_000, 300_000])
def test_a_spec_nested_too_deeply_is_set_aside_with_the_reason(
    jobs: Jobs, depth: int, size: int
) -> None:
    raw = job_of(size)
    spec = orjson.dumps(raw["spec"]).replace(b'"note"', b'"deep":' + nested(depth) + b',"note"')
    jobs.take(listed(raw | {"spec": 0}, spec=spec))
    why = jobs.why_unreadable("a-uid")
    cached = jobs.get("a-uid")
    if size > SPEC_BYTES_MAX:
        assert cached is not None
        assert cached.too_large is not None
    else:
        assert why is not None
        assert "nested deeper than 200 levels" in why or "Recursion" in why


async def test_deeply_nested_object_stops_no_list() -> None:
    names = ["a", "b", "c"]
    items = [orjson.dumps(job_of(2_000, name=name)) for name in names]
    items[1] = items[1].replace(b'"note":""', b'"note":' + nested(9_000))
    items[1] = items[1].replace(b'"note":"x', b'"deep":' + nested(9_000) + b',"note":"x')
    limits: list[int] = []

    class Nested:
        async def get(
            self, path: str, *, query: dict[str, str], decode: Decode, **named: Any
        ) -> Any:
            limit, start = int(query["limit"]), int(query.get("continue", 0))
            limits.append(limit)
            more = str(start + limit) if start + limit < len(items) else ""
            head = orjson.dumps({"resourceVersion": "9", "continue": more})
            body = b",".join(items[start : start + limit])
            return decode(b'{"metadata":' + head + b',"items":[' + body + b"]}")

    watch = metrics.Metrics(CollectorRegistry()).watch
    pager = Pager(cast(Api, Nested()), "/jobs", JOBS, metrics=watch)
    async with contextlib.aclosing(pager.pages()) as pages:
        found = [JOBS.listed(item) async for page in pages for item in page.items]
    jobs = [job_objects.parse(each) for each in found if not isinstance(each, Undeclared)]
    assert [job.uid for job in jobs] == ["a-uid", "b-uid", "c-uid"]
    assert [job.too_deep for job in jobs] == [False, True, False]
    assert len(limits) < 20


def test_an_event_nested_too_deeply_is_read_as_far_as_it_goes() -> None:
    line = b'{"type":"MODIFIED","object":{"metadata":{"uid":"u"},"spec":' + nested(9_000) + b"}}"
    event = projections.event(line)
    assert event.type == "MODIFIED"
    assert body_limits.TOO_DEEP in bytes(event.object)


def test_json_is_cut_only_below_the_bound() -> None:
    text = orjson.dumps({"a": ["]}", {"b": '\\"{'}], "c": {}})
    assert body_limits.shallow(text) == text
    assert orjson.loads(body_limits.shallow(nested(5_000))) != 1
    assert body_limits.shallow(nested(body_limits.DEPTH_MAX)) == nested(body_limits.DEPTH_MAX)
    cut = body_limits.shallow(b'{"x":' + nested(body_limits.DEPTH_MAX) + b',"y":[1]}')
    assert orjson.loads(cut)["y"] == [1]


class Server:
    """Lists these jobs, and sends these events once."""

    def __init__(self, *items: Raw) -> None:
        self.items, self.events = items, list[Raw]()

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        return decode(orjson.dumps({"metadata": {"resourceVersion": "9"}, "items": self.items}))

    async def stream(self, path: str, **named: Any) -> Any:
        await asyncio.sleep(0)
        while self.events:
            yield orjson.dumps(self.events.pop(0))


async def test_the_spec_is_held_once_and_what_is_gone_is_dropped(jobs: Jobs) -> None:
    server = Server(job_of(10_000), job_of(400_000, name="b"))
    copy: Reflector[JobObject] = Reflector(
        cast(Api, server),
        "/jobs",
        projection=JOBS,
        parse=job_objects.parse,
        on_change=jobs.changed,
        lasting=job_objects.with_held_spec,
        metrics=metrics.Metrics(CollectorRegistry()).watch,
        clock=lambda: 100.0,
        rng=Random(0),
    )
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    news = job_of(10_000, metadata={"resourceVersion": "10"}, status={"phase": "Suspended"})
    gone = job_of(400_000, name="b", metadata={"resourceVersion": "11"})
    server.events += [{"type": "MODIFIED", "object": news}, {"type": "DELETED", "object": gone}]
    await until(lambda: jobs.get("b-uid") is None, "the deletion")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    cached = jobs.get("a-uid")
    assert cached is not None
    assert (cached.object.rv, cached.object.spec) == (10, copy.records["a-uid"].spec)
    assert cached.object.spec is copy.records["a-uid"].spec
