"""Servers and clocks of the unit tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import scripted_server
from fixtures.scripted_server import Respond, ScriptedServer, Serve


@pytest.fixture
def serve(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Start a server for the commands of the test."""

    def start(respond: Respond) -> ScriptedServer:
        running = scripted_server.running(respond)
        server = running.__enter__()
        request.addfinalizer(lambda: running.__exit__(None, None, None))
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        return server

    return start


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long commands would have waited."""
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found
