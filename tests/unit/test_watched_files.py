"""ConfigMaps with files of the site: which changes reach discovery."""

from __future__ import annotations

import base64

from fixtures.office import informers_of
from fixtures.reporting import Store
from railwright_api import names
from railwright_controllers.watch import files
from railwright_controllers.watch.files import PROGRESS, FilesRecord
from railwright_kube.core_v1 import ConfigMap, Stamped
from railwright_topology.sources.formats import File

RESULT = "probes.json"


def stored(version: int, *, name: str = names.PROBES, **packed: bytes) -> FilesRecord:
    """A version of the ConfigMap, with the ``progress`` or the ``result`` of surveys."""
    called = {"progress": PROGRESS, "result": RESULT}
    data = {called[what]: base64.b64encode(its).decode() for what, its in packed.items()}
    stamp = Stamped(uid=name, name=name, resource_version=str(version))
    return files.record(ConfigMap(stamp, binary_data=data))


async def test_progress_alone_is_no_change_of_a_source() -> None:
    """It is stored once a minute: files are not read for it, nor is the fabric assembled."""
    informers = informers_of(Store())
    due = informers.discovery.due
    assert informers.survey_progress() is None
    for version, (result, progress, is_news) in enumerate(
        [(b"1", b"a", True), (b"1", b"b", False), (b"2", b"c", True), (b"2", b"", False)], start=1
    ):
        due.clear()
        informers.files.absorb(stored(version, result=result, progress=progress))
        assert due.is_set() is is_news
        assert informers.survey_progress() == File(names.PROBES, PROGRESS, progress)


async def test_only_the_controllers_own_progress_is_no_source() -> None:
    """A file of this name elsewhere is one that nobody reads: the Fabric says so."""
    informers = informers_of(Store())
    informers.files.absorb(stored(1, result=b"{}", progress=b"a"))
    informers.files.absorb(stored(2, name="site", progress=b"b"))
    await informers.discovery.read_files()
    await informers.discovery.refresh()
    problems = {str(read.file): read.problem for read in informers.discovery.found.files}
    assert problems.keys() == {f"{names.PROBES}/{RESULT}", f"site/{PROGRESS}"}
    assert "files of this name are not read" in problems[f"site/{PROGRESS}"]
