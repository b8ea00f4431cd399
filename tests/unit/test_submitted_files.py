"""What ``railwright submit`` reads from files and options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.command import run
from fixtures.scripted_server import Request, Response, Serve
from railwright_cli import submit
from railwright_cli.errors import UsageError

MERGED = """\
kind: TrainingJob
spec:
  deep: {second: &second {<<: &first {a: 1, b: 2}, b: 3}}
again: {<<: *second, b: 4}
both: {<<: [*first, *second], c: 5}
"""


def test_merge_keys_are_read_as_kubectl_does(tmp_path: Path) -> None:
    """A mapping that is merged into another may be constructed later than that."""
    (tmp_path / "job.yaml").write_text(MERGED)
    (found,) = submit.read(str(tmp_path / "job.yaml"))
    assert found["spec"]["deep"]["second"] == {"a": 1, "b": 3}
    assert found["again"] == {"a": 1, "b": 4}
    assert found["both"] == {"a": 1, "b": 2, "c": 5}


@pytest.mark.parametrize(
    "text", ["{a: 1, a: 2}", "{'a': 1, a: 2}", "{<<: {b: 1, b: 2}}", "{a: {1: x, 0x1: y}}"]
)
def test_key_that_is_there_twice_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(f"{{kind: TrainingJob, spec: {text}}}")
    with pytest.raises(UsageError, match="is there twice"):
        [*submit.read(str(tmp_path / "job.yaml"))]


@pytest.mark.parametrize(("amount", "ranks"), [("8", 8), ("2k", 2000), ("9" * 5000, 1)])
def test_ranks_are_as_many_as_devices(serve: Serve, amount: str, ranks: int) -> None:
    """An amount that is none is for the API server to refuse."""

    def respond(request: Request) -> Response:
        return Response(json.loads(request.body) | {"metadata": {"name": "a", "namespace": "d"}})

    server = serve(respond)
    assert run("submit", "--image", "i", "--limits", f"a/b={amount}", "--", "true") == 0
    (role,) = json.loads(server.requests[0].body)["spec"]["roles"]
    assert role["processesPerReplica"] == ranks
    assert role["template"]["spec"]["containers"][0]["resources"]["limits"] == {"a/b": amount}
