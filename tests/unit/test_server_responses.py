"""What commands make of responses that are rare: of proxies, of servers without capacity, of
objects that are being deleted."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fixtures import scripted_server
from fixtures.command import run
from fixtures.scripted_server import (
    NAMESPACED,
    Request,
    Respond,
    Response,
    Serve,
    event,
    in_turn,
    job,
    status,
)
from kubernetes import client
from railwright_cli import status as status_command
from railwright_cli import why
from railwright_cli.api_objects import (
    ContainerView,
    JobStatusView,
    JobView,
    MetadataView,
    PodSpecView,
    PodView,
)
from railwright_cli.api_server import ApiServer
from railwright_cli.errors import RequestError
from railwright_cli.jobs import ordered
from railwright_cli.pod_log import PodLog

START = datetime(2026, 1, 1, tzinfo=UTC)
GATEWAY = Response(b"<html>404 Not Found</html>", 404)
RUNNING, SUCCEEDED = (Response(job("a", phase=phase)) for phase in ("Running", "Succeeded"))


def one_by_one(reads: Respond) -> Respond:
    """Reads so, and watches that end at once."""
    return lambda request: Response([]) if "watch" in request.query else reads(request)


@pytest.mark.parametrize("absent", [GATEWAY, Response(b"404 page not found\n", 404)])
def test_404_that_names_no_object_is_no_deletion(
    serve: Serve, pauses: list[float], absent: Response, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(one_by_one(in_turn(RUNNING, absent, SUCCEEDED)))
    assert run("status", "-w", "a") == 0
    printed = capsys.readouterr()
    assert "trying again" in printed.err
    assert "deleted" not in printed.err
    assert "Succeeded" in printed.out


def test_absent_job_is_a_deletion(
    serve: Serve, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    serve(one_by_one(in_turn(RUNNING, status(404, "NotFound", "a"))))
    assert run("status", "-w", "a") == 1
    assert "the job was deleted" in capsys.readouterr().err


def test_watch_that_ends_at_once_is_not_opened_at_once(serve: Serve, pauses: list[float]) -> None:
    serve(one_by_one(in_turn(*[RUNNING] * 5, SUCCEEDED)))
    assert run("status", "-w", "a") == 0
    assert len([pause for pause in pauses if pause > status_command.PAUSE_S / 2]) >= 4


@pytest.mark.parametrize(("code", "reason"), [(429, "TooManyRequests"), (503, "Unavailable")])
def test_request_without_capacity_is_repeated(
    serve: Serve, pauses: list[float], code: int, reason: str
) -> None:
    busy = status(code, reason, **{"Retry-After": "3"})
    serve(in_turn(busy, busy, RUNNING))
    assert run("status", "a") == 0
    assert pauses == [3, 3]


def test_request_is_not_repeated_for_ever(serve: Serve, pauses: list[float]) -> None:
    serve(in_turn(status(429, "TooManyRequests", **{"Retry-After": "3600"})))
    assert run("status", "a") == 2
    assert len(pauses) == 10
    assert max(pauses) == 10


def test_refused_token_is_read_again_once(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has another server by then, so that it shows in which it was read."""
    second = serve(in_turn(SUCCEEDED))
    (tmp_path / "first").mkdir()

    def refuse(_: Request) -> Response:
        second.kubeconfig(tmp_path / "first")
        return status(401, "Unauthorized")

    with scripted_server.running(refuse) as first:
        monkeypatch.setenv("KUBECONFIG", str(first.kubeconfig(tmp_path / "first")))
        assert run("status", "a") == 0
        assert len(first.requests) == 1
    always = serve(lambda _: status(401, "Unauthorized"))
    assert run("status", "a") == 2
    assert len(always.requests) == 2


def test_cancel_goes_on_after_a_refusal(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that is gone by then counts as deleted. None is deleted twice, nor another of its
    name."""

    def respond(request: Request) -> Response:
        name = request.path.rpartition("/")[2]
        refusals = {"a": status(404, "NotFound", "a"), "b": status(403, "Forbidden", "b")}
        if request.method == "DELETE" and name in refusals:
            return refusals[name]
        return Response(job(name))

    server = serve(respond)
    assert run("cancel", "a", "a", "b", "default/c") == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["default/a deleted", "default/c deleted"]
    assert "default/b: Forbidden" in printed.err
    deletions = [each for each in server.requests if each.method == "DELETE"]
    assert [each.path for each in deletions] == [f"{NAMESPACED}/{name}" for name in "abc"]
    uids = [json.loads(each.body)["preconditions"]["uid"] for each in deletions]
    assert uids == ["uid-a", "uid-b", "uid-c"]


def test_invalid_token_is_not_printed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of http.client has the header."""

    def call(*_: object, **__: object) -> None:
        connection = http.client.HTTPConnection("localhost")
        connection.putrequest("GET", "/")
        connection.putheader("Authorization", "Bearer secret\nx")

    serve(in_turn(RUNNING))
    monkeypatch.setattr(client.ApiClient, "call_api", call)
    with pytest.raises(RequestError, match="the token of the kubeconfig has a character") as raised:
        ApiServer().get("/version", dict)
    assert "secret" not in str(raised.value)


def test_log_goes_on_after_the_end_of_summer_time(
    serve: Serve, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A node in local time writes earlier texts then."""
    first = [b"2026-10-25T02:59:58+02:00 one", b"2026-10-25T02:59:59.5+02:00 two"]
    then = [first[1], b"2026-10-25T02:00:00.25+01:00 three", b"2026-10-25T02:00:00.5+01:00 four"]
    old = b"2026-10-25T02:59:57+02:00 none"
    serve(in_turn(Response(first), Response([old, *then])))
    metadata = MetadataView(name="a-worker-0-1", namespace="default")
    log = PodLog(ApiServer(), PodView(metadata, PodSpecView((ContainerView("train"),))), None)
    for _ in range(2):
        log.print_further(is_followed=True)
    assert capsysbinary.readouterr().out.split() == [b"one", b"two", b"three", b"four"]


def test_job_being_deleted_has_no_position(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metadata = MetadataView("a", "default", "1", START, deletion_timestamp=START)
    goes = JobView(metadata, status=JobStatusView(phase="Queued", reason="NotEnoughNodes"))
    waits = JobView(MetadataView("b", "default", "2", START + timedelta(1)))
    found = {each.job.metadata.name: each.position for each in ordered([goes, waits], ())}
    assert found == {"b": 1, "a": None}
    now = START + timedelta(seconds=5)
    assert next(why.lines(goes, [], now)) == "default/a is being deleted, for 5s"
    assert "being deleted" in next(status_command.StatusView(goes).lines())


@pytest.mark.parametrize(
    ("arguments", "response", "message"),
    [
        (("submit", "--image", "i", "--", "true"), Response(b"<html>sign in</html>"), "else than"),
        (("status", "a"), Response(b"<html>sign in</html>"), "else than"),
        (("status", "a"), GATEWAY, "404 Not Found"),
    ],
)
def test_page_of_another_server_is_an_error(
    serve: Serve,
    arguments: tuple[str, ...],
    response: Response,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(in_turn(response))
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


def test_doctor_goes_on_without_what_it_may_not_read(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(lambda request: status(403, "Forbidden", request.path))
    assert run("doctor", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["result"] for row in found if row["check"] != "clock"} == {"unknown"}
    serve(lambda _: Response({"major": "", "minor": ""}))
    run("doctor", "-o", "json")
    found = json.loads(capsys.readouterr().out)
    assert found[0]["finding"] == "the API server does not state its version"


def test_label_that_is_no_number_is_of_no_attempt() -> None:
    labels = {"railwright.dev/attempt": "x"}
    assert PodView(MetadataView(labels=labels)).attempt == 0


def test_host_list_of_a_later_version_hides_no_node(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = {
        "levels": [{"level": "rack"}],
        "places": [{"nodes": "a[", "domains": ["r"]}, {"nodes": "b", "domains": ["r"]}],
    }

    def respond(request: Request) -> Response:
        if request.path.endswith("/fabrics/default"):
            return Response({"status": {"topology": topology}})
        nodes = [{"metadata": {"name": name}} for name in "ab"]
        is_nodes = request.path.endswith("/nodes")
        return Response({"metadata": {}, "items": nodes if is_nodes else []})

    serve(respond)
    assert run("nodes", "-o", "json") == 0
    found = {row["name"]: row["domain"] for row in json.loads(capsys.readouterr().out)}
    assert found["b"] == "r"
    assert found.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("redirection", "code"), [("2>&-", 0), (">&-", 0), ("<&-", 0), ("> /dev/full", 2)]
)
def test_streams_may_be_missing_or_full(serve: Serve, redirection: str, code: int) -> None:
    serve(in_turn(SUCCEEDED))
    command = f"{sys.executable} -m railwright_cli status -w a {redirection}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_event_of_a_watch_is_shown(
    serve: Serve, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the reads before it do not have it yet."""
    changed = job("a", phase="Succeeded")
    serve(
        lambda request: (
            Response([event("MODIFIED", changed)]) if "watch" in request.query else RUNNING
        )
    )
    assert run("status", "-w", "a") == 0
    assert "Succeeded" in capsys.readouterr().out


def test_line_arrives_before_its_stream_ends(serve: Serve) -> None:
    """Also without chunks, as some proxies send it."""
    read, waited = threading.Event(), []

    def then() -> bytes:
        waited.append(read.wait(5))
        return b"two"

    serve(lambda _: Response([b"one", then]))
    lines = ApiServer().lines("/log", {}, silence_s=30)
    assert next(lines) == b"one\n"
    read.set()
    assert [*lines] == [b"two\n"]
    assert waited == [True]


def test_long_line_is_read_in_parts(serve: Serve) -> None:
    """Only where that is allowed: an event of a watch is whole."""
    long = b"x" * (1 << 20)
    serve(lambda _: Response(b"a\n\r" + long + b"\nb"))
    lines = [*ApiServer().lines("/log", {}, silence_s=30, part_bytes=1 << 16)]
    assert b"".join(lines) == b"a\n\r" + long + b"\nb"
    assert (lines[0], lines[-1]) == (b"a\n", b"b")
    assert len(lines) > 9
    assert max(map(len, lines)) <= 2 << 16
    assert [*ApiServer().lines("/log", {}, silence_s=30)] == [b"a\n", b"\r" + long + b"\n", b"b"]


def test_object_of_another_form_ends_a_watch(
    serve: Serve, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays so, unlike a response that was cut off."""
    serve(one_by_one(in_turn(RUNNING, Response(b'{"meta'), Response({"metadata": 7}), SUCCEEDED)))
    assert run("status", "-w", "a") == 2
    printed = capsys.readouterr().err
    assert "Expected `object`, got `int`" in printed
    assert printed.count("trying again") == 1


@pytest.mark.parametrize(("command", "is_suspended"), [("suspend", False), ("resume", True)])
def test_another_job_of_the_name_is_not_changed(
    serve: Serve, command: str, is_suspended: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was created after the job was read: the API server compares the UID."""
    found = job("a")
    found["spec"]["suspend"] = is_suspended

    def respond(request: Request) -> Response:
        if request.method != "PATCH":
            return Response(found)
        uid = json.loads(request.body).get("metadata", {}).get("uid")
        return Response(found) if uid == "another" else status(422, "Invalid", "a")

    server = serve(respond)
    assert run(command, "a") == 2
    assert "default/a: Invalid" in capsys.readouterr().err
    (patch,) = [json.loads(each.body) for each in server.requests if each.method == "PATCH"]
    assert patch == {"metadata": {"uid": "uid-a"}, "spec": {"suspend": not is_suspended}}
