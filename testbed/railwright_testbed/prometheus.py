"""A real Prometheus, of Debian's package: for the dashboards and the rules.

The package is unpacked and not installed, as its installation starts a server.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from railwright_testbed import binaries, command, waiting
from railwright_testbed.errors import TestbedError
from railwright_testbed.ports import PortReservation
from railwright_testbed.processes import Process
from railwright_testbed.scraping import Reader

PACKAGE = "prometheus"
PROGRAMS = ("prometheus", "promtool")
INTERVAL_S = 1
"""Between two scrapes."""

READY_DEADLINE_S = 60.0
ANSWER_DEADLINE_S = 30.0

Series = list[dict[str, Any]]
"""Labels (``metric``) and the newest ``value`` of each."""


def programs() -> dict[str, Path]:
    """The paths of ``PROGRAMS``: found on this machine, or unpacked once into the cache."""
    found = {name: shutil.which(name) for name in PROGRAMS}
    if all(found.values()):
        return {name: Path(str(path)) for name, path in found.items()}
    folder = binaries.cache_folder() / "binaries" / "debian-prometheus"
    with binaries.building(folder):
        if not folder.exists():
            _unpack(folder)
    return {name: folder / "usr/bin" / name for name in PROGRAMS}


def prepare() -> None:
    """Unpack the package now, if it is to be had. If not, that is reported when it is needed."""
    try:
        for name, path in programs().items():
            print(f"{name}\t{path}")
    except (TestbedError, OSError) as error:
        print(f"not unpacked: {error}", file=sys.stderr)


def _unpack(folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    if os.geteuid() == 0:
        command.output(["apt-get", "update", "--quiet"])
    # The user _apt, which downloads for root, may not write into the cache.
    download = ["apt-get", "download", "--quiet", "-o", "APT::Sandbox::User=root", PACKAGE]
    command.output(["sh", "-c", f"cd '{unfinished}' && exec {' '.join(download)}"])
    (package,) = unfinished.glob("*.deb")
    command.output(["dpkg-deb", "--extract", str(package), str(unfinished)])
    package.unlink()
    unfinished.rename(folder)


def authorized(name: str, reader: Reader, folder: Path) -> dict[str, Any]:
    """The configuration of scrapes of one process, as this reader reads it. The authorities and the
    token are files of the folder, as this version of Prometheus needs them."""
    authorities, token = folder / f"{name}.crt", folder / f"{name}.token"
    authorities.write_text(reader.authorities)
    token.write_text(reader.token)
    return {
        "job_name": name,
        "scheme": "https",
        "tls_config": {"ca_file": str(authorities), "server_name": reader.host},
        "authorization": {"credentials_file": str(token)},
    }


def promtool(*arguments: str) -> str:
    """What promtool prints. Raises TestbedError with its findings."""
    return command.output([str(programs()["promtool"]), *arguments])


class Prometheus:
    """One server with these ``scrape_configs``, and a file of rules if there is one. It serves the
    files of the folder ``assets`` below /user."""

    def __init__(
        self,
        scrape_configs: Sequence[Mapping[str, Any]],
        *,
        rules: Path | None = None,
        assets: Path | None = None,
    ) -> None:
        self._configs, self._rules, self._assets = scrape_configs, rules, assets
        self._port = PortReservation("127.0.0.1")
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"<Prometheus {self.url} {self._process!r}>"

    @property
    def url(self) -> str:
        """Its address, for a browser too."""
        return f"http://127.0.0.1:{self._port.port}"

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="railwright-prometheus-")
        folder = Path(self._folder.name)
        settings: dict[str, Any] = {
            "global": {
                "scrape_interval": f"{INTERVAL_S}s",
                "evaluation_interval": f"{INTERVAL_S}s",
            },
            "scrape_configs": [dict(each) for each in self._configs],
            "rule_files": [] if self._rules is None else [str(self._rules)],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        self._process = Process(
            PACKAGE,
            [
                str(programs()["prometheus"]),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port.port}",
                *([] if self._assets is None else [f"--web.user-assets={self._assets}"]),
            ],
            log=folder / "prometheus.log",
            records=folder / "records",
        )
        self._process.until(self._is_ready, "Prometheus", deadline_s=READY_DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.end()
        self._port.release()
        if self._folder is not None:
            self._folder.cleanup()

    def query(self, expr: str) -> Series:
        """The series of an expression now. Raises TestbedError if it is none."""
        found: Series = self._answer("/api/v1/query", query=expr)["result"]
        return found

    def until(self, expr: str, *, deadline_s: float) -> Series:
        """The series of an expression, once it has some."""
        waiting.until(lambda: self.query(expr), f"series of {expr}", deadline_s=deadline_s)
        return self.query(expr)

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health and their last error."""
        groups = self._answer("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def asset(self, name: str) -> bytes:
        """A file that it serves. Raises HTTPError if there is none."""
        return self._get(f"/user/{name}")

    def _is_ready(self) -> bool:
        try:
            self._get("/-/ready")
        except OSError:
            return False
        return True

    def _answer(self, path: str, **arguments: str) -> Any:
        try:
            return json.loads(self._get(f"{path}?{urllib.parse.urlencode(arguments)}"))["data"]
        except urllib.error.HTTPError as refused:
            raise TestbedError(f"{arguments}: {json.load(refused)['error']}") from refused

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=ANSWER_DEADLINE_S) as response:  # noqa: S310
            body: bytes = response.read()
            return body
