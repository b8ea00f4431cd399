"""``make audit``: what a database of vulnerabilities says of the locked packages. A server here
stands in for the database."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKED = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)


class Database(ThreadingHTTPServer):
    """Knows one vulnerability of each package in ``vulnerable``, of any version."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.vulnerable: set[str] = set()
        self.queried: set[str] = set()

    def answer(self, name: str) -> object:
        self.queried.add(name)
        package = {"name": name, "ecosystem": "PyPI"}
        found = {"id": f"TEST-{name}", "summary": "planted", "affected": [{"package": package}]}
        return {"vulns": [found]} if name in self.vulnerable else {}


class _Handler(BaseHTTPRequestHandler):
    server: Database

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(self.server.answer(query["package"]["name"])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def database() -> Iterator[Database]:
    with Database() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _audit(url: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--old-file=.venv/.installed", "audit", f"PYTHON={sys.executable}"]
    return subprocess.run(
        [*command, f"OSV={url}"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def test_audit_covers_all_locks_and_names_what_is_vulnerable(
    database: Database,
) -> None:
    url = f"http://127.0.0.1:{database.server_port}"
    good = _audit(url)
    assert good.returncode == 0, good.stderr
    locks = [ROOT / "requirements.lock", *(ROOT / "images").glob("*.lock")]
    assert database.queried >= {each for lock in locks for each in LOCKED.findall(lock.read_text())}
    database.vulnerable = {"aiohttp"}
    bad = _audit(url)
    assert bad.returncode != 0
    assert "TEST-aiohttp" in bad.stdout


def test_audit_without_an_answer_fails(database: Database) -> None:
    url = f"http://127.0.0.1:{database.server_port}"
    database.shutdown()
    database.server_close()
    assert _audit(url).returncode != 0
