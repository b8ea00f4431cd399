"""The complete history of etcd in order, without a cache.

A testbed's API server stores JSON and never compacts, so from revision 1 on nothing is lost. Read
through etcd's own JSON gateway, a watch from revision 1 brings it all; one revision is one write of
one transaction, whatever the clocks of those who wrote.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from railwright_testbed.errors import TestbedError

Json = dict[str, Any]

REGISTRY = "/registry/"
MARKS = f"{REGISTRY}railwright.dev-marks"
"""A key of this testbed alone: it lies among the keys that are read, and no API server reads it."""

_FIRST, _BEYOND = f"{REGISTRY}leases/", f"{REGISTRY}railwright.dev0"
"""From Leases over Nodes and Pods to our kinds; what lies between them is left out one by one."""

_KEPT = tuple(f"{REGISTRY}{kind}/" for kind in ("leases", "minions", "pods", "railwright.dev"))
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Change:
    """One key of a revision. ``value`` is the object as it is stored; None when it was deleted."""

    key: str
    value: Json | None


@dataclass(frozen=True, slots=True)
class Revision:
    """All that one transaction changed of what is kept, and its number."""

    number: int
    changes: tuple[Change, ...]


def mark(etcd: str, note: Json) -> int:
    """Write a note into the history; return its revision."""
    body = {"key": _coded(MARKS), "value": _coded(json.dumps(note))}
    with _answer(etcd, "/v3/kv/put", body) as response:
        return int(json.loads(response.read())["header"]["revision"])


def revisions(etcd: str) -> Iterator[Revision]:
    """Every revision up to this moment that changed a Lease, Node, Pod, one of ours, or the marks.

    ``etcd`` is its host and port. Held at one time: one message, 1.5 MiB or one revision.
    """
    last = mark(etcd, {})
    changes = itertools.takewhile(lambda numbered: numbered[0] < last, _watched(etcd))
    for number, group in itertools.groupby(changes, key=lambda numbered: numbered[0]):
        kept = tuple(change for _, change in group if _is_kept(change.key))
        if kept:
            yield Revision(number, kept)


def _watched(etcd: str) -> Iterator[tuple[int, Change]]:
    """Every event from revision 1 on, for ever; raises TestbedError when etcd has lost some."""
    asked = {"key": _coded(_FIRST), "range_end": _coded(_BEYOND), "start_revision": 1}
    body = {"create_request": {**asked, "fragment": True}}
    with _answer(etcd, "/v3/watch", body) as response:
        while line := response.readline():
            message = json.loads(line)
            result = message.get("result")
            if result is None or result.get("canceled"):
                raise TestbedError(f"etcd's watch from revision 1 ended: {message}")
            for event in result.get("events", ()):
                pair = event["kv"]
                gone = event.get("type") == "DELETE"
                value = None if gone else _object(pair["key"], base64.b64decode(pair["value"]))
                key = base64.b64decode(pair["key"]).decode()
                yield int(pair["mod_revision"]), Change(key, value)
    raise TestbedError("etcd ended the watch before the last revision came")


def _object(coded_key: str, value: bytes) -> Json:
    if not value.startswith(b"{"):
        key = base64.b64decode(coded_key).decode()
        raise TestbedError(f"{key} is stored as {value[:8]!r}…, expected JSON")
    return dict(json.loads(value))


def _is_kept(key: str) -> bool:
    return key == MARKS or key.startswith(_KEPT)


@contextlib.contextmanager
def _answer(etcd: str, path: str, body: Json) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(etcd, timeout=_DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("POST", path, body=json.dumps(body))
        response = connection.getresponse()
        if response.status != 200:
            text = response.read().decode(errors="replace")
            raise TestbedError(f"etcd answered {path} with {response.status}: {text}")
        yield response


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
