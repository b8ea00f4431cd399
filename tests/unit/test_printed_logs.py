"""``railwright logs``: of which attempts, how much, and what there is in place of a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fixtures.command import run
from fixtures.scripted_server import NAMESPACED, Request, Response, Serve, in_turn, job, status
from unit.test_followed_logs import NOT_STARTED, PODS, line, pod

ENDED = {"attempt": 1, "cause": "RankFailed", "message": "rank 1", "lastLines": "the reason\n"}
TWO = {"attempt": 2, "endedAttempt": 1, "lastTermination": ENDED}
REFUSED = status(500, "InternalError", "connection refused")
OF_KUBELET = Response([b"unable to retrieve container logs"])


def responses(
    jobs: Callable[[Request], Response],
    logs: Callable[[Request], Response],
    pods: list[dict[str, Any]],
) -> Callable[[Request], Response]:
    """Those of a server with these pods."""

    def respond(request: Request) -> Response:
        if request.path == f"{NAMESPACED}/a":
            return jobs(request)
        if request.path == PODS:
            return Response({"metadata": {}, "items": pods})
        if request.path.endswith("/log"):
            return logs(request)
        name = request.path.rpartition("/")[2]
        found = [Response(each) for each in pods if each["metadata"]["name"] == name]
        return found[0] if found else status(404, "NotFound", name)

    return respond


def of_attempt(request: Request) -> Response:
    return Response([line(f"attempt {request.path.split('/')[-2][-1]}")])


@pytest.mark.parametrize(
    ("options", "printed", "tails"),
    [
        ((), "attempt 2\n", [None]),
        (("--previous",), "attempt 1\n", [None]),
        (("--all-attempts", "--tail", "5"), "attempt 1\nattempt 2\n", ["5", "5"]),
        (("-f",), "attempt 2\n", [None]),
        (("-f", "--all-attempts"), "attempt 1\nattempt 2\n", [None, None]),
    ],
)
def test_logs_are_of_the_attempts_that_are_asked_for(
    serve: Serve,
    pauses: list[float],
    options: tuple[str, ...],
    printed: str,
    tails: list[str | None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only with --follow they go on."""
    jobs = in_turn(*[Response(job("a", phase="Succeeded", **TWO))] * 6)
    server = serve(responses(jobs, of_attempt, [pod(1, "Failed"), pod(2, "Succeeded")]))
    assert run("logs", "a", *options) == 0
    assert capsys.readouterr().out == printed
    logs = [each.query for each in server.requests if each.path.endswith("/log")]
    assert [each.get("tailLines") for each in logs] == tails
    assert all(("follow" in each) == ("-f" in options) for each in logs)


@pytest.mark.parametrize("refused", [REFUSED, OF_KUBELET])
def test_last_lines_are_printed_in_place_of_an_unreadable_log(
    serve: Serve, pauses: list[float], refused: Response, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node is dead, or its kubelet has removed the container."""
    for options, code in (((), 2), (("-f",), 1)):
        failed = job("a", phase="Failed", attempt=1, endedAttempt=1, lastTermination=ENDED)
        jobs = in_turn(*[Response(failed)] * 9)
        serve(responses(jobs, lambda _: refused, [pod(1, "Failed")]))
        assert run("logs", "a", *options) == code
        printed = capsys.readouterr()
        assert printed.out == "the reason\n"
        assert "attempt 1 ended: RankFailed: rank 1" in printed.err


def test_container_that_starts_later_is_printed_whole(
    serve: Serve, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """--tail is of what there is when the command starts."""
    jobs = in_turn(
        *[Response(job("a", phase="Starting", attempt=1, reason="Starting"))] * 4,
        *[Response(job("a", phase="Succeeded", attempt=1))] * 2,
    )
    logs = in_turn(NOT_STARTED, Response([line("x"), line("y")]))
    pods = [pod(1, "Pending")]

    def read(request: Request) -> Response:
        found = logs(request)
        if found is not NOT_STARTED:
            pods[:] = [pod(1, "Succeeded")]
        return found

    server = serve(responses(jobs, read, pods))
    assert run("logs", "-f", "a", "--tail", "0") == 0
    printed = capsys.readouterr()
    assert printed.out == "x\ny\n"
    assert printed.err.splitlines()[0] == "railwright: waiting: the job is Starting"
    tails = [each.query.get("tailLines") for each in server.requests if "/log" in each.path]
    assert tails == ["0", None]


def test_log_that_is_gone_is_noted(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = in_turn(*[Response(job("a", phase="Succeeded", attempt=1))] * 3)
    serve(responses(jobs, of_attempt, []))
    assert run("logs", "-f", "a") == 0
    assert "attempt 1 has no log any more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2m", 120), ("1h30m", 5400), ("2d", 172_800)]
)
def test_since_is_in_seconds(serve: Serve, text: str, seconds: int) -> None:
    jobs = in_turn(Response(job("a", phase="Running", attempt=1)))
    server = serve(responses(jobs, of_attempt, [pod(1, "Running")]))
    assert run("logs", "a", "--since", text) == 0
    (query,) = [each.query for each in server.requests if each.path.endswith("/log")]
    assert query["sinceSeconds"] == str(seconds)
