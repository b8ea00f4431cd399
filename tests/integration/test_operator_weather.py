"""Faults between operator and API server: a gang is bound once, completely."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from fixtures.api_faults import AnyFault, Fault, Late, Reply, Rule
from integration import manifests, operator_site
from integration.operator_site import Floor, Job, Json, Site
from railwright_api import names
from railwright_testbed import operator_process, service_process, waiting
from railwright_testbed.api_client import ApiError

SIZE = 16
LEVEL = "one-seat"
RETRY_AFTER_S = 1.0
"""The shortest that an API server asks for."""

Weather = tuple[tuple[str, AnyFault, dict[str, Any]], ...]

OFTEN: dict[str, Any] = {"times": None, "probability": 0.15}
WEATHER: dict[str, Weather] = {
    "requests_and_replies_lost": (
        ("write *", Fault.REQUEST_LOST, OFTEN | {"seed": 1}),
        ("write *", Fault.REPLY_LOST, OFTEN | {"seed": 2}),
    ),
    "replies_to_bindings_lost": (
        ("create pods/binding", Fault.REPLY_LOST, {"times": None, "probability": 0.5}),
    ),
    "conflicts": (("write *", Reply(409), OFTEN),),
    "errors_of_the_server": (
        ("write *", Reply(500), OFTEN | {"seed": 1}),
        ("write *", Reply(504), OFTEN | {"seed": 2}),
    ),
    "told_to_wait": (("write *", Reply(429, {"Retry-After": "1"}), {"times": 20}),),
    "all_is_late": (("*", Late(0.2), {"times": None}),),
    "news_told_twice": (("event *", Fault.TWICE, {"times": None}),),
    "watches_broken_off": (
        ("event pods", Fault.REPLY_LOST, {"times": None, "probability": 0.1}),
        ("event trainingjobs", Fault.REPLY_LOST, {}),
    ),
    "watches_told_that_it_is_gone": (
        ("event pods", Reply(410), {"first": 2}),
        ("event pods", Reply(500), {"first": 2}),
        ("event trainingjobs", Reply(410), {}),
        ("event trainingjobs", Reply(500), {}),
    ),
}


@pytest.fixture(autouse=True)
def calm(site: Site) -> Iterator[None]:
    """Whatever a test did to the proxy ends with it."""
    yield
    site.proxy.lift_all()


@pytest.mark.parametrize("weather", WEATHER.values(), ids=WEATHER)
def test_a_gang_is_bound_once_in_any_weather(
    site: Site, hall: Floor, gang: str, weather: Weather
) -> None:
    before, sent = _leader(site), len(site.proxy.seen)
    site.proxy.fail("write leases", Late(0), times=None)  # The Lease has tests of its own.
    rules = [site.proxy.fail(which, fault, **more) for which, fault, more in weather]
    job = hall.apply(gang, nodes=SIZE)
    _bound_once(hall, job, sent=sent)
    _until_met(rules, hall, gang)
    assert _leader(site) == before


def test_two_writers_of_the_same_objects_lose_no_update(site: Site, hall: Floor, gang: str) -> None:
    before, sent = _leader(site), len(site.proxy.seen)
    ledger = f"/apis/{names.API_VERSION}/{names.LEDGERS}/{names.SINGLETON}"
    path = f"{hall.path(names.TRAINING_JOBS)}/{gang}"
    overtaken = site.proxy.fail("update ledgers", Fault.REQUEST_HELD)
    with _again_and_again(site, lambda n: {ledger: _note(n), path: _note(n)}):
        job = hall.apply(gang, nodes=SIZE)
        waiting.until(lambda: overtaken.met, "a write of the ledger", deadline_s=20)
        site.admin.patch(ledger, _note(-1))
        overtaken.lift()
        _bound_once(hall, job, sent=sent)
    waiting.until(lambda: not hall.in_flight(), "the entry leaves", deadline_s=20)
    assert 409 in site.proxy.statuses("update ledgers", since=sent)
    assert site.proxy.count("update ledgers", since=sent) < 20
    assert _leader(site) == before


def test_an_api_server_that_sheds_our_load_is_not_pressed(
    site: Site, hall: Floor, gang: str
) -> None:
    """An API server that sheds load asks for ``Retry-After``, a second at least, and the client
    waits for that after each refusal. So each pod has one request a second at most."""
    before, sent = _leader(site), len(site.proxy.seen)
    with manifests.created(site.admin, *_one_seat()):
        waiting.until(lambda: _is_limited(site), "the level in force", deadline_s=30)
        _bound_once(hall, hall.apply(gang, nodes=SIZE), sent=sent)
    assert 429 in site.proxy.statuses("write *", since=sent)
    for selector in ("create pods", "create pods/binding"):
        most = site.proxy.most_in(RETRY_AFTER_S, selector, since=sent, namespace=hall.name)
        assert most <= SIZE, f"{selector}: {most} in {RETRY_AFTER_S} s"
    assert _leader(site) == before


def test_watches_cut_again_and_again_cause_no_work_twice(
    site: Site, hall: Floor, gang: str
) -> None:
    sent = len(site.proxy.seen)
    job = hall.apply(gang, nodes=SIZE)

    def is_bound() -> bool:
        site.proxy.cut_streams()
        return len(job.bound()) == SIZE and not hall.in_flight()

    waiting.until(is_bound, "all of it", deadline_s=40, evidence=job.timeline)
    for selector in ("create pods", "create pods/binding"):
        assert site.proxy.count(selector, since=sent, namespace=hall.name) == SIZE


def test_a_job_that_was_suspended_unseen_is_not_started(site: Site, hall: Floor, gang: str) -> None:
    """Its change is withheld; the precondition of the first status tells of it."""
    job = hall.apply(gang, nodes=SIZE, queue="later")
    job.until_reason("QueueNotFound")
    withheld = site.proxy.fail("modified trainingjobs", Fault.REPLY_HELD, times=None)
    job.patch({"suspend": True})
    queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "later"}}
    with manifests.created(site.admin, (f"/apis/{names.API_VERSION}/{names.QUEUES}", queue)):
        job.until_phase("Suspended", deadline_s=30)
        waiting.until(
            lambda: not job.pods() and not hall.in_flight(), "nothing of it", deadline_s=30
        )
    assert withheld.met


def test_a_pod_whose_deletion_is_withheld_keeps_its_node(site: Site) -> None:
    with operator_site.floor_on(site, (2,)) as floor:
        job = floor.apply("job")
        job.until_bound()
        withheld = site.proxy.fail("event pods", Fault.REPLY_HELD, times=None)
        path = f"/api/v1/namespaces/{floor.name}/pods/job-worker-0-1"
        site.admin.delete(f"{path}?gracePeriodSeconds=0")
        other = floor.apply("other", nodes=1)
        other.until_reason("NotEnoughNodes")
        waiting.until(lambda: withheld.met, "withheld news", deadline_s=20)
        assert other.bound() == {}
        withheld.lift()
        assert job.until(lambda status: "lastTermination" in status, "it is known")[
            "lastTermination"
        ]["cause"] == ("PodDeleted")


def test_foreign_bind_unseen_takes_its_node_once_known(site: Site) -> None:
    """Until then the node looks free. Nothing more is placed there, and both pods run on."""
    with operator_site.floor_on(site, (2,)) as floor:
        taken, free = floor.nodes
        withheld = site.proxy.fail("event pods", Fault.REPLY_HELD, times=None)
        _bind_foreign(floor, taken)
        waiting.until(lambda: withheld.met, "withheld news", deadline_s=20)
        first = floor.apply("first", nodes=1)
        assert first.until_nodes() == [taken]
        withheld.lift()
        waiting.until(lambda: _knows_all_pods(site), "all pods", deadline_s=20)
        second = floor.apply("second", nodes=1)
        assert second.until_nodes() == [free]
        first.delete()
        waiting.until(lambda: not first.pods(), "its pods are gone", deadline_s=60)
        waiting.until(lambda: _knows_all_pods(site), "all pods", deadline_s=20)
        third = floor.apply("third", nodes=1)
        third.until_reason("NotEnoughNodes")
        assert third.bound() == {}


def _bind_foreign(floor: Floor, node: str) -> None:
    """A pod of nobody's job on this node, with all of its devices."""
    amounts = {"nvidia.com/gpu": "8"}
    container = {
        "name": "main",
        "image": "example.com/other",
        "resources": {"requests": amounts, "limits": amounts},
    }
    spec = {"schedulerName": "other", "containers": [container]}
    path = f"/api/v1/namespaces/{floor.name}/pods"
    floor.site.admin.post(path, {"metadata": {"name": "foreign"}, "spec": spec})
    binding = {"metadata": {"name": "foreign"}, "target": {"kind": "Node", "name": node}}
    floor.site.admin.post(f"{path}/foreign/binding", binding)


def _knows_all_pods(site: Site) -> bool:
    """Whether the operator holds as many pods as there are."""
    (count,) = site.metrics('railwright_watch_records{kind="Pod"').values()
    return count == len(site.admin.get("/api/v1/pods")["items"])


def _bound_once(hall: Floor, job: Job, *, sent: int) -> None:
    """All pods are made and bound, each once, in the first attempt; then the ledger is empty."""
    job.until_bound()
    waiting.until(lambda: not hall.in_flight(), "the entry leaves", deadline_s=40)
    made = hall.site.proxy.statuses("create pods", since=sent, namespace=hall.name)
    bound = hall.site.proxy.statuses("create pods/binding", since=sent, namespace=hall.name)
    assert (made.count(201), bound.count(201)) == (SIZE, SIZE)
    assert len(job.pods()) == SIZE


def _until_met(rules: Sequence[Rule], hall: Floor, gang: str) -> None:
    """Every rule was met. After a watch began anew there may be no news left for the next rule: so
    there is more, of a job and a pod that stay as they are."""
    numbers = itertools.count()
    job, pod = f"{hall.path(names.TRAINING_JOBS)}/{gang}", f"pods/{gang}-worker-0-1"

    def met() -> bool:
        if all(rule.met for rule in rules):
            return True
        for path in (job, f"/api/v1/namespaces/{hall.name}/{pod}"):
            hall.site.admin.patch(path, _note(next(numbers)))
        return False

    waiting.until(met, "weather", deadline_s=30, evidence=lambda: str(rules))


def _leader(site: Site) -> tuple[int, int]:
    """Which process leads, in which epoch."""
    return site.operator.pid, site.ledger()["spec"]["epoch"]


def _note(number: int) -> Json:
    return {"metadata": {"annotations": {"example.com/note": str(number)}}}


@contextlib.contextmanager
def _again_and_again(site: Site, patches: Callable[[int], dict[str, Json]]) -> Iterator[None]:
    """A second writer touches these objects fifty times a second."""
    done = threading.Event()

    def write() -> None:
        with contextlib.closing(site.plane.client()) as client:
            for number in range(100_000):
                for path, body in patches(number).items():
                    with contextlib.suppress(ApiError):
                        client.patch(path, body)
                if done.wait(0.02):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def _one_seat() -> list[tuple[str, Json]]:
    """All that the operator asks is in a level with the fewest seats there are, and no queue."""
    group = "/apis/flowcontrol.apiserver.k8s.io/v1"
    limited = {
        "nominalConcurrencyShares": 1,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    level = {
        "metadata": {"name": LEVEL},
        "spec": {"type": "Limited", "limited": limited},
    }
    service_account = {
        "name": operator_process.SERVICE_ACCOUNT,
        "namespace": service_process.NAMESPACE,
    }
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": service_account}],
        "resourceRules": [everything | {"namespaces": ["*"], "clusterScope": True}],
    }
    schema = {
        "metadata": {"name": LEVEL},
        "spec": {
            "priorityLevelConfiguration": {"name": LEVEL},
            "matchingPrecedence": 500,  # After that of our Lease, which has seats of its own.
            "rules": [rule],
        },
    }
    return [(f"{group}/prioritylevelconfigurations", level), (f"{group}/flowschemas", schema)]


def _is_limited(site: Site) -> bool:
    return f'priority_level="{LEVEL}"' in site.plane.kubectl("get", "--raw", "/metrics")
