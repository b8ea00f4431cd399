"""The mark of a hanging cycle is written over the version of the job that was read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubernetes import client
from railwright_kube import connection
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.write import hang_mark

JOB = {"metadata": {"namespace": "team", "name": "job", "uid": "one", "resourceVersion": "1"}}


class ObjectsDouble:
    """The API of custom objects, which has a newer version of the job."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self.patches: list[dict[str, Any]] = []

    def get_namespaced_custom_object(self, *_: str) -> dict[str, Any]:
        return {"metadata": {"uid": self._uid, "resourceVersion": "7"}}

    def patch_namespaced_custom_object_status(self, *given: Any) -> None:
        self.patches.append(given[-1])


@pytest.mark.parametrize("uid", ["one", "another"])
def test_mark_names_the_version_that_was_read(uid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objects, deadlines = ObjectsDouble(uid), list[float]()
    monkeypatch.setattr(client, "CustomObjectsApi", lambda _: objects)
    monkeypatch.setattr(
        connection, "blocking_client", lambda _, deadline_s: deadlines.append(deadline_s)
    )
    cached = cast("CachedJob", SimpleNamespace(raw=JOB, uid="one"))
    hang_mark.write(None, cached, {"hangs": 1})
    mark = {"metadata": {"resourceVersion": "7"}, "status": {"schedulingBackoff": {"hangs": 1}}}
    assert objects.patches == ([mark] if uid == "one" else [])
    assert deadlines == [hang_mark.DEADLINE_S]
