"""The client to the API server, against a real one, with faults put in between."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from fixtures import proxy, shell
from fixtures.api_faults import Fault, Reply
from railwright_api import names, routes
from railwright_kube import bodies, client, errors, paths
from railwright_kube.server_clock import ServerClock
from railwright_testbed import ControlPlane


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


async def test_errors_state_whether_a_write_happened(
    control_plane: ControlPlane, namespace: str
) -> None:
    place = config_maps(namespace)
    async with shell.api(shell.connect(control_plane)) as api:
        made = await api.create(place, shell.config_map("one"))
        with pytest.raises(errors.AlreadyExistsError):
            await api.create(place, shell.config_map("one"))
        await api.replace(f"{place}/one", made | {"data": {"a": "1"}})
        with pytest.raises(errors.ConflictError):
            await api.replace(f"{place}/one", made | {"data": {"a": "2"}})
        with pytest.raises(errors.NotFoundError, match="other"):
            await api.get(f"{place}/other")
        with pytest.raises(errors.InvalidError, match=r"metadata\.name"):
            await api.create(place, shell.config_map("Not A Name"))


@pytest.mark.parametrize("error_s", [3 * 86_400.0, -3 * 86_400.0])
async def test_time_is_that_of_the_api_server(control_plane: ControlPlane, error_s: float) -> None:
    """Whatever the clock of this machine is."""
    clock = ServerClock(time.monotonic, wall_s=time.time() + error_s)
    async with shell.api(shell.connect(control_plane), clock=clock) as api:
        await api.get(paths.NODES)
    assert abs(clock() - time.time()) < 5


async def test_precondition_protects_recreated_object(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A deletion with the old UID does not delete an object that was created again under the
    name."""
    place = paths.pods(namespace)
    async with shell.api(shell.connect(control_plane)) as api:
        await shell.allow_pods(api, namespace)
        first = (await api.create(place, shell.pod("p")))["metadata"]["uid"]
        await api.delete(paths.pod(namespace, "p"), bodies.deletion(first))
        second = (await api.create(place, shell.pod("p")))["metadata"]["uid"]
        with pytest.raises(errors.ConflictError):
            await api.delete(paths.pod(namespace, "p"), bodies.deletion(first))
        bind = bodies.binding("p", first, node="n")
        with pytest.raises(errors.ConflictError):
            await api.create(paths.binding(namespace, "p"), bind)
        assert (await api.get(paths.pod(namespace, "p")))["metadata"]["uid"] == second


async def test_writes_that_a_webhook_holds_up_keep_no_others_waiting(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Of pods in one namespace; the ledger is of the cluster, a status may be of another."""
    place = config_maps(namespace)
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        held = between.fail("create pods", Fault.REQUEST_HELD, times=None, namespace=namespace)
        pods = [shell.pod(f"p{number}") for number in range(2 * client.WRITES_MAX)]
        writes = [asyncio.create_task(api.create(paths.pods(namespace), pod)) for pod in pods]
        await shell.until(lambda: held.met == client.WRITES_MAX, "writes held up")
        with pytest.raises(errors.NotFoundError):
            await api.delete(routes.kind(names.LEDGERS) + "/none")
        await api.create(place, shell.config_map("one"))
        assert not any(write.done() for write in writes)
        held.lift()
        await asyncio.gather(*writes, return_exceptions=True)


async def test_a_process_without_the_lease_reads_but_sends_no_write(
    control_plane: ControlPlane, namespace: str
) -> None:
    place = config_maps(namespace)
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(
            shell.connect(control_plane, through=between.entrance), may_write=lambda: False
        ) as api,
    ):
        await api.get(place)
        for write in (
            api.create(place, shell.config_map("one")),
            api.replace(f"{place}/one", shell.config_map("one")),
            api.patch(f"{place}/one", {"data": {"a": "1"}}),
            api.delete(f"{place}/one"),
        ):
            with pytest.raises(errors.NotLeader):
                await write
        assert [each.message.verb for each in between.seen] == ["list"]


async def test_the_lease_is_checked_again_before_each_retry_of_a_write(
    control_plane: ControlPlane, namespace: str
) -> None:
    answers = itertools.chain([True], itertools.repeat(False))
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(
            shell.connect(control_plane, through=between.entrance), may_write=lambda: next(answers)
        ) as api,
    ):
        between.fail("create configmaps", Reply(429))
        with pytest.raises(errors.NotLeader):
            await api.create(config_maps(namespace), shell.config_map("one"))
        assert between.count("create configmaps") == 1


async def test_write_refused_for_load_waits_and_happens_once(
    control_plane: ControlPlane, namespace: str
) -> None:
    """After 429 the client waits as long as Retry-After states and repeats the write once."""
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        between.fail("create configmaps", Reply(429, {"Retry-After": "1"}))
        started_s = time.monotonic()
        await api.create(config_maps(namespace), shell.config_map("one"))
        assert time.monotonic() - started_s >= 1.0
        assert between.count("create configmaps") == 2


async def test_a_write_refused_for_load_ends_at_its_deadline(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DEADLINE_S", 5.0)
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        between.fail("create configmaps", Reply(429, {"Retry-After": "60"}))
        with pytest.raises(errors.TooManyRequestsError):
            await api.create(config_maps(namespace), shell.config_map("one"))
        assert between.count("create configmaps") == 1


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
async def test_a_write_whose_reply_is_lost_is_not_sent_twice(
    control_plane: ControlPlane, namespace: str, verb: str
) -> None:
    place = config_maps(namespace)
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        made = await api.create(place, shell.config_map("one"))
        between.fail(f"{verb} configmaps", Fault.REPLY_LOST)
        before = between.count(f"{verb} configmaps")
        writes: dict[str, Callable[[], Awaitable[Any]]] = {
            "create": lambda: api.create(place, shell.config_map("two")),
            "update": lambda: api.replace(f"{place}/one", made | {"data": {"a": "1"}}),
            "patch": lambda: api.patch(f"{place}/one", {"data": {"a": "1"}}),
            "delete": lambda: api.delete(f"{place}/one"),
        }
        with pytest.raises(errors.OutcomeUnknown):
            await writes[verb]()
        assert between.count(f"{verb} configmaps") == before + 1


async def test_a_server_error_after_a_write_leaves_its_outcome_open(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        between.fail("create configmaps", Reply(504))
        with pytest.raises(errors.OutcomeUnknown):
            await api.create(config_maps(namespace), shell.config_map("one"))


@pytest.mark.parametrize(
    "fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST, Reply(503), Reply(504)], ids=str
)
async def test_a_read_is_tried_again(
    control_plane: ControlPlane, namespace: str, fault: Fault | Reply
) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        between.fail("list configmaps", fault, times=2)
        assert (await api.get(config_maps(namespace)))["kind"] == "ConfigMapList"
        assert between.count("list configmaps") == 3


async def test_a_silent_server_is_given_up_at_the_deadline(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DEADLINE_S", 0.5)
    place = config_maps(namespace)
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as api,
    ):
        between.stall()
        started_s = time.monotonic()
        with pytest.raises(errors.Unreachable):
            await api.get(place, deadline_s=0.5)
        with pytest.raises(errors.OutcomeUnknown):
            await api.create(place, shell.config_map("one"))
        assert time.monotonic() - started_s < 10.0


@pytest.mark.parametrize(
    "fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST, Reply(429), Reply(503)], ids=str
)
async def test_standby_asks_for_reviews_again(
    control_plane: ControlPlane, fault: Fault | Reply
) -> None:
    """A review changes nothing."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "of nobody"},
    }
    path = paths.AUTHENTICATION_REVIEWS
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(
            shell.connect(control_plane, through=between.entrance), may_write=lambda: False
        ) as api,
    ):
        between.fail("review tokenreviews", fault, times=2)
        found = await api.review(path, body, deadline_s=10.0, decode=orjson.loads)
        assert "error" in found["status"]
        assert between.count("review tokenreviews") == 3
        with pytest.raises(errors.NotLeader):
            await api.create(path, body)


async def test_an_outage_fails_writes_without_effect_and_ends(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = config_maps(namespace)
    async with shell.api(shell.connect(control_plane)) as api:
        await api.get(place)
        monkeypatch.setattr(client, "DEADLINE_S", 2.0)
        control_plane.stop_api_server()
        try:
            with pytest.raises(errors.RequestFailed):
                await api.create(place, shell.config_map("one"))
            with pytest.raises(errors.Unreachable):
                await api.create(place, shell.config_map("one"))
        finally:
            await asyncio.to_thread(control_plane.start_api_server)
        monkeypatch.undo()
        await api.create(place, shell.config_map("one"))


async def test_rotated_token_is_read_again(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A request with an expired token fails; the next one uses the new token of the file."""
    token_file, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    config = orjson.loads(control_plane.kubeconfig.read_bytes())
    config["users"][0]["user"] = {"tokenFile": str(token_file)}
    kubeconfig.write_bytes(orjson.dumps(config))
    token_file.write_text("expired")
    async with shell.api(str(kubeconfig)) as api:
        with pytest.raises(errors.UnauthorizedError):
            await api.get(config_maps(namespace))
        token_file.write_text(control_plane.token)
        await api.create(config_maps(namespace), shell.config_map("one"))


async def test_unreadable_credentials_fail_the_request(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The request raises; it is not sent without credentials."""
    token_file, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    config = orjson.loads(control_plane.kubeconfig.read_bytes())
    config["users"][0]["user"] = {"tokenFile": str(token_file)}
    token_file.write_text("expired")
    kubeconfig.write_bytes(orjson.dumps(config))
    async with shell.api(str(kubeconfig)) as api:
        kubeconfig.unlink()
        with pytest.raises(errors.Unreachable, match="credentials not read"):
            await api.get(config_maps(namespace))
        with pytest.raises(errors.Unreachable, match="credentials not read"):
            await anext(api.stream(config_maps(namespace), query={"watch": "1"}, stall_s=5.0))
        token_file.write_text(control_plane.token)
        kubeconfig.write_bytes(orjson.dumps(config))
        await api.get(config_maps(namespace))
