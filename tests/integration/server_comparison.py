"""What a server answers to generated requests, in a form in which two servers can be compared.

UIDs and versions become the numbers of their order. Of a spec only those fields count that the
simulated server has: it sets no defaults.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from integration.generated_requests import GeneratedRequest
from railwright_kube.client import MERGE_PATCH
from railwright_kube.transport import JSON
from simulator.object_updates import merged

Json = dict[str, Any]
Exchange = Callable[[str, str, Json | None, str], tuple[int, Json]]
"""Sends a request (method, path, body, media type); returns the status and the decoded body."""

Result = tuple[GeneratedRequest, int, Json]
"""A request, and the status and the body of its response."""

SHOWN_MAX = 5
OTHER_UID = "11111111-2222-4333-8444-555555555555"
UNCOMPARED = ("managedFields", "creationTimestamp")
ORDERED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")
"""UIDs and versions in messages."""
STORAGE = re.compile(r"StorageError: .*AdditionalErrorMsg: ")
"""The part of a message that is about etcd."""


class ServerView:
    """A server as its client sees it: ``results`` has all its responses, in order."""

    def __init__(self, exchange: Exchange) -> None:
        self.results: list[Result] = []
        self._exchange = exchange
        self._seen: dict[str, list[Json]] = {}

    def send(self, request: GeneratedRequest) -> None:
        """Send a request."""
        path = request.path.partition("?")[0].removesuffix("/status").removesuffix("/binding")
        body = self._body(request, self._seen.get(path, []))
        type_ = MERGE_PATCH if request.method == "PATCH" else JSON
        status, found = self._exchange(request.method, request.path, body, type_)
        self.results.append((request, status, found))
        if "uid" in found.get("metadata", {}):
            place = f"{path}/{found['metadata']['name']}" if request.method == "POST" else path
            self._seen.setdefault(place, []).append(found)

    def _body(self, request: GeneratedRequest, seen: Sequence[Json]) -> Json | None:
        """The body with its preconditions."""
        if request.method == "GET":
            return None
        unseen = {"metadata": {"uid": OTHER_UID, "resourceVersion": "1"}}
        first, last = (seen[0], seen[-1]) if seen else (unseen, unseen)
        preconditions = {}
        if request.uid:
            is_current = request.uid == "current"
            preconditions["uid"] = last["metadata"]["uid"] if is_current else OTHER_UID
        if request.version:
            source = last if request.version == "current" else first
            preconditions["resourceVersion"] = source["metadata"]["resourceVersion"]
        body = request.body
        if request.method == "DELETE":
            return body | {"preconditions": preconditions}
        if request.method == "PUT":
            body = merged(last if seen else request.base, body)
            body = merged(body, {"metadata": {"uid": None, "resourceVersion": None}})
        body = merged(body, {"metadata": preconditions}) if preconditions else body
        return dict(body)


class Comparable:
    """The results and the events of a server, with numbers in place of UIDs and versions."""

    def __init__(self, results: Sequence[Result], events: Iterable[Json]) -> None:
        events = [*events]
        bodies = [body for _, _, body in results]
        objects = [*_objects(bodies), *(event["object"] for event in events)]
        metadata = [found["metadata"] for found in objects]
        versions = sorted({int(each["resourceVersion"]) for each in metadata})
        self._numbers = {str(version): number for number, version in enumerate(versions)}
        uids = dict.fromkeys(each["uid"] for each in metadata)
        self._numbers |= {uid: number for number, uid in enumerate(uids)}
        self.results = [
            {"request": request, "code": code, **self._body(body)}
            for request, code, body in results
        ]
        self.events = [event | {"object": self._object(event["object"])} for event in events]

    def _body(self, body: Json) -> Json:
        if body["kind"] == "Status":
            return self._status(body)
        if "items" in body:
            return {"items": [self._object(item) for item in body["items"]]}
        return self._object(body)

    def _status(self, status: Json) -> Json:
        """A Status; messages about fields are those of the schema."""
        details = {
            name: status.get("details", {}).get(name) for name in ("name", "group", "kind", "uid")
        }
        details["uid"] = self._numbers.get(details["uid"])
        message = ORDERED.sub("#", STORAGE.sub("", status.get("message", "")))
        if status.get("reason") == "Invalid":
            message, details = "", {}
        return {"reason": status.get("reason"), "message": message, "details": details}

    def _object(self, found: Json) -> Json:
        metadata = {
            name: value
            for name, value in found["metadata"].items()
            if name not in UNCOMPARED and value not in ({}, [])
        }
        for name in ("uid", "resourceVersion"):
            metadata[name] = self._numbers[metadata[name]]
        if "deletionTimestamp" in metadata:
            metadata["deletionTimestamp"] = "set"
        status = {**found.get("status", {})}
        status.pop("qosClass", None)
        if "phase" in status and "conditions" in status:
            status["conditions"] = [(each["type"], each["status"]) for each in status["conditions"]]
        return {**found, "metadata": metadata, "status": status}


def differences(found: Comparable, expected: Comparable) -> list[str]:
    """Where the simulated server differs from the real one: the first few, by request or event."""
    pairs: list[tuple[Json, Json]] = [
        *itertools.zip_longest(found.results, expected.results, fillvalue={}),
        *itertools.zip_longest(found.events, expected.events, fillvalue={}),
    ]
    differing = []
    for ours, whole in pairs:
        theirs = _restricted(whole, ours)
        if ours != theirs:
            names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            values = (f"{name}: {ours.get(name)} for {theirs.get(name)}" for name in names)
            differing.append(f"{ours.get('request')}: {'; '.join(values)}")
    return differing[:SHOWN_MAX]


def _restricted(real: Any, simulated: Any) -> Any:
    """The real value without the fields that the simulated one lacks, but for the node of a pod."""
    if isinstance(real, dict) and isinstance(simulated, dict):
        kept = simulated.keys() | {"nodeName"}
        return {
            name: value
            if name in ("metadata", "status")
            else _restricted(value, simulated.get(name))
            for name, value in real.items()
            if name in kept
        }
    if isinstance(real, list) and isinstance(simulated, list) and len(real) == len(simulated):
        return [_restricted(*pair) for pair in zip(real, simulated, strict=True)]
    return real


def _objects(bodies: Iterable[Json]) -> Iterator[Json]:
    for body in bodies:
        if "items" in body:
            yield from body["items"]
        elif body["kind"] != "Status":
            yield body
