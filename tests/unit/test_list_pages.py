"""Lists of several pages: the next one is requested before one is decoded."""

from __future__ import annotations

import json
import signal
import threading

import pytest

from fixtures import terminals
from fixtures.command import run
from fixtures.scripted_server import Request, Response, Serve, job, status
from railwright_cli import api_server
from railwright_cli.api_server import ApiServer

DEADLINE_S = 10.0


def test_expired_list_is_read_again_as_one_page(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of several pages is gone after some minutes."""

    def respond(request: Request) -> Response:
        if "continue" in request.query:
            return status(410, "Expired")
        is_paged = request.query.get("limit") == "500"
        names = ["a"] if is_paged else ["a", "b"]
        metadata = {"continue": "more"} if is_paged else {}
        found = [job(name, phase="Queued") for name in names]
        return Response(
            {"metadata": metadata, "items": [] if "priority" in request.path else found}
        )

    serve(respond)
    assert run("queue", "-o", "json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["a", "b"]


def test_next_page_is_requested_before_one_is_decoded(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, waited = threading.Event(), []

    def respond(request: Request) -> Response:
        if "continue" in request.query:
            requested.set()
            return Response({"metadata": {}, "items": [{"name": "b"}]})
        return Response({"metadata": {"continue": "more"}, "items": [{"name": "a"}]})

    def decoded(body: bytes, kind: type) -> object:
        if kind == api_server._Page[dict[str, str]]:
            waited.append(requested.wait(DEADLINE_S))
        return decode(body, kind)

    serve(respond)
    decode = api_server._decoded
    monkeypatch.setattr(api_server, "_decoded", decoded)
    assert ApiServer().items("/list", dict[str, str]) == [{"name": "a"}, {"name": "b"}]
    assert waited == [True, True]


def test_ctrl_c_does_not_wait_for_the_next_page(serve: Serve) -> None:
    requested, released = threading.Event(), threading.Event()

    def respond(request: Request) -> Response:
        if "continue" in request.query:
            requested.set()
            released.wait(DEADLINE_S * 3)
        return Response({"metadata": {"continue": "more"}, "items": [job("a")]})

    serve(respond)
    with terminals.running("-m", "railwright_cli", "queue", environment={}) as (_, process):
        try:
            assert requested.wait(DEADLINE_S)
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
        finally:
            released.set()
