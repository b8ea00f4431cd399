"""``railwright logs -f`` past attempts whose pods never start, or end meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.command import run
from fixtures.scripted_server import NAMESPACED, Request, Response, Serve, in_turn, job, status

PODS = "/api/v1/namespaces/default/pods"
NOT_STARTED = status(400, "BadRequest", "waiting to start")


def pod(attempt: int, phase: str) -> dict[str, Any]:
    """The pod of an attempt."""
    labels = {"railwright.dev/attempt": str(attempt), "railwright.dev/job-uid": "uid-a"}
    metadata = {"name": f"a-worker-0-{attempt}", "namespace": "default", "uid": f"uid-{attempt}"}
    spec = {"containers": [{"name": "train"}]}
    return {"metadata": metadata | {"labels": labels}, "spec": spec, "status": {"phase": phase}}


def line(text: str) -> bytes:
    """A line of a log."""
    return f"2026-01-01T00:00:00Z {text}".encode()


@pytest.mark.parametrize("options", [(), ("--all-attempts",)])
@pytest.mark.parametrize("is_there", [True, False])
def test_pod_that_never_started_is_left_behind(
    serve: Serve,
    pauses: list[float],
    options: tuple[str, ...],
    is_there: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The kubelet refused it, or it was evicted in its init container: it stays with its name, and
    its log is refused for ever."""
    ended = {"attempt": 1, "cause": "PodFailed", "message": "UnexpectedAdmissionError"}
    first = job("a", phase="Starting", attempt=1)
    then = {"attempt": 2, "endedAttempt": 1, "lastTermination": ended}
    jobs = in_turn(
        Response(first),
        *[Response(job("a", phase="Running", **then))] * 6,
        Response(job("a", phase="Succeeded", **then)),
    )
    pods = [pod(1, "Failed"), pod(2, "Succeeded")]

    def respond(request: Request) -> Response:
        if request.path == f"{NAMESPACED}/a":
            return jobs(request)
        if request.path == PODS:
            return Response({"metadata": {}, "items": pods})
        if request.path == f"{PODS}/a-worker-0-1/log":
            pods[:-1] = pods[:-1] if is_there else []
            return NOT_STARTED
        if request.path.endswith("/log"):
            return Response([line("x")])
        name = request.path.rpartition("/")[2]
        found = [Response(each) for each in pods if each["metadata"]["name"] == name]
        return found[0] if found else status(404, "NotFound", name)

    serve(respond)
    assert run("logs", "-f", "a", *options) == 0
    printed = capsys.readouterr()
    assert printed.out == "x\n"
    assert "attempt 1 ended: PodFailed: UnexpectedAdmissionError" in printed.err


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_pod_that_starts_meanwhile_is_read(
    serve: Serve, pauses: list[float], phase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may also start and end between the two requests."""
    logs = in_turn(NOT_STARTED, Response([line("x")]))
    found = in_turn(*(Response(pod(1, each)) for each in ("Pending", phase, "Succeeded")))
    jobs = in_turn(
        *[Response(job("a", phase="Running", attempt=1))] * 3,
        Response(job("a", phase="Succeeded", attempt=1)),
    )

    def respond(request: Request) -> Response:
        if request.path == f"{NAMESPACED}/a":
            return jobs(request)
        if request.path == PODS:
            return Response({"metadata": {}, "items": [pod(1, "Pending")]})
        if "placements" in request.path:
            return status(404, "NotFound", "a-1")
        return (logs if request.path.endswith("/log") else found)(request)

    serve(respond)
    assert run("logs", "-f", "a") == 0
    assert capsys.readouterr().out == "x\n"


def test_later_attempts_are_printed_whole(serve: Serve, pauses: list[float]) -> None:
    """--tail and --since are of what there is when the command starts."""
    ended = {"attempt": 1, "cause": "RankFailed", "message": "", "endedAttempt": 1}
    jobs = in_turn(
        Response(job("a", phase="Running", attempt=1)),
        Response(job("a", phase="Running", attempt=2, endedAttempt=1, lastTermination=ended)),
        Response(job("a", phase="Succeeded", attempt=2, endedAttempt=1, lastTermination=ended)),
    )

    def respond(request: Request) -> Response:
        if request.path == f"{NAMESPACED}/a":
            return jobs(request)
        if request.path == PODS:
            return Response({"metadata": {}, "items": [pod(1, "Failed"), pod(2, "Succeeded")]})
        if request.path.endswith("/log"):
            return Response([line("x")])
        if "placements" in request.path:
            return status(404, "NotFound", request.path.rpartition("/")[2])
        attempt = int(request.path.rpartition("-")[2])
        return Response(pod(attempt, "Failed" if attempt == 1 else "Succeeded"))

    server = serve(respond)
    assert run("logs", "-f", "a", "--tail", "7", "--since", "1h30m") == 0
    queries = {each.path: each.query for each in server.requests if each.path.endswith("/log")}
    limits = [(each.get("tailLines"), each.get("sinceSeconds")) for each in queries.values()]
    assert limits == [("7", "5400"), (None, None)]


@pytest.mark.parametrize("text", ["", "0s", "5", "-5s", "1s2m", "5 s", "1.5h", "٣s", "99999d"])
def test_what_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("logs", "a", "--since", text) == 2
    assert "is no duration above zero, such as 90s, 10m or 1h30m" in capsys.readouterr().err
