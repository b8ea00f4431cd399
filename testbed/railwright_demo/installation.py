"""Railwright, installed on somebody's cluster and uninstalled again, and nothing else changed.

Each object has a label with the run of the demo that created it. Only objects with the label of
this run are deleted, so nothing has to be recorded, whenever the demo is interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from railwright_api import names
from railwright_api.kinds import DEFINITIONS
from railwright_cli import doctor
from railwright_cli.api_server import CORE, NOT_FOUND, ApiServer
from railwright_cli.errors import RequestError
from railwright_cli.installation import ResourceList, Version
from railwright_demo import manifests, pod_states
from railwright_demo.errors import DemoRefused
from railwright_demo.manifests import LABEL, NAMESPACE, SYSTEM
from railwright_testbed import waiting
from railwright_testbed.api_client import Json

CONFLICT = 409
KINDS = f"/apis/{names.API_VERSION}"
VOLUMES = f"{CORE}/persistentvolumes"
RECLAIM = "persistentVolumeReclaimPolicy"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
WRITTEN_BY_US = (names.LEDGERS, names.FABRICS, names.NODE_HEALTHS)

SERVED_S = 60.0
READY_S = 600.0
REMOVED_S = 120.0
PAUSE_S = 0.25


class Installation:
    """What one run of the demo installs; ``image`` is that of the operator. Raises DemoRefused."""

    def __init__(self, server: ApiServer, *, image: str, run: str) -> None:
        self._server = server
        self._run = run
        self.kinds = manifests.kinds(run)
        self.objects = manifests.objects(image, run)
        self._plurals: dict[tuple[str, str], str] = {}

    def __repr__(self) -> str:
        return f"<Installation {self._run}>"

    def check(self) -> None:
        """Raise DemoRefused if the cluster cannot have it, or has Railwright already. Nothing is
        changed."""
        version = self._server.get("/version", Version)
        if version.number < doctor.OLDEST_VERSION:
            oldest = ".".join(map(str, doctor.OLDEST_VERSION))
            found = f"{version.major}.{version.minor}"
            raise DemoRefused(f"the cluster has Kubernetes {found}: Railwright needs {oldest}")
        for raw in self.kinds:
            kind = self._found(raw)
            if kind is None:
                self._try(raw)
            elif not _includes(kind["spec"], raw["spec"]):
                name = raw["metadata"]["name"]
                raise DemoRefused(f"the kind {name} is there, and of another version")
        for raw in self._roots():
            self._try(raw)
        own, of_users = self._stored()
        if stored := of_users or own:
            raise DemoRefused(
                f"Railwright is installed here, or was: there is {stored[0]}, and the demo would "
                "change it. docs/install.md says how to uninstall"
            )

    def create(self) -> None:
        """Create it; return once the kinds are served. Raises RequestError and TestbedError."""
        for raw in self.kinds:
            if self._found(raw) is None:
                self._server.create(self._collection(raw), raw)
        waiting.until(self._are_kinds_served, "the kinds to be served", deadline_s=SERVED_S)
        for raw in self.objects:
            self._server.create(self._collection(raw), raw)

    def until_ready(self) -> None:
        """Return once all processes are ready. Raises DemoError, RequestError and TestbedError."""
        deployments = [raw for raw in self.objects if raw["kind"] == "Deployment"]

        def are_ready() -> bool:
            pod_states.check_images(self._server, SYSTEM)
            return all(map(self._is_ready, deployments))

        waiting.until(
            are_ready,
            "the operator and the controllers to be ready",
            deadline_s=READY_S,
            evidence=lambda: pod_states.describe(self._server, SYSTEM),
        )

    def remove(self) -> list[str]:
        """Delete what `create` created. Returns what is left, as arguments of `kubectl delete`.

        The kinds stay if there are objects of users.
        """
        roots = self._roots()
        spaces = [raw for raw in roots if raw["kind"] == "Namespace"]
        ordered = [*reversed(spaces), *(raw for raw in reversed(roots) if raw not in spaces)]
        try:
            volumes = self._volumes()
            left = [self._argument(raw) for raw in ordered if not self._is_removed(raw)]
            left += [
                name
                for name, is_retained in volumes.items()
                if is_retained or not self._is_gone(f"{CORE}/{name}")
            ]
            return left + self._remove_kinds()
        except RequestError:
            # The API server is away: it is not known what is left.
            return [self._argument(raw) for raw in (*ordered, *self.kinds)]

    def _remove_kinds(self) -> list[str]:
        created = [raw for raw in self.kinds if self._is_created(raw)]
        own, of_users = self._stored()
        left = []
        if of_users or len(created) < len(self.kinds):
            left = [path for path in own if not self._is_gone(f"{KINDS}/{path}", deletes=True)]
        if of_users:
            return [*left, *map(self._argument, created)]
        return left + [self._argument(raw) for raw in created if not self._is_removed(raw)]

    def _roots(self) -> list[Json]:
        """All objects but the kinds and what is in a namespace of the demo."""
        own = (SYSTEM, NAMESPACE)
        return [raw for raw in self.objects if raw["metadata"].get("namespace") not in own]

    def _try(self, raw: Json) -> None:
        """Let the API server check the creation of an object. Raises DemoRefused."""
        what = f"{raw['kind']} {raw['metadata']['name']}"
        try:
            self._server.create(self._collection(raw), raw, is_dry_run=True)
        except RequestError as error:
            if error.code != CONFLICT:
                raise DemoRefused(f"you cannot create {what} here: {error}") from error
            labels = (self._found(raw) or raw)["metadata"].get("labels", {})
            reason = "Railwright is installed here, or a part of it. docs/install.md uninstalls it"
            if LABEL in labels:
                types = sorted({self._type(each) for each in (*self.kinds, *self._roots())})
                reason = (
                    "a demo that was killed left it, or runs. This removes what demos installed, "
                    "and all objects of kinds that they created: "
                    f"kubectl delete -A -l {LABEL} {','.join(types)}"
                )
            raise DemoRefused(f"there is {what}: {reason}") from error

    def _is_removed(self, raw: Json) -> bool:
        """Delete an object if this run created it; False if it is still there at the deadline."""
        return not self._is_created(raw) or self._is_gone(self._path(raw), deletes=True)

    def _is_gone(self, path: str, *, deletes: bool = False) -> bool:
        """Wait until an object is gone. Raises RequestError if the API server is away for long."""
        end_s = time.monotonic() + REMOVED_S
        while True:
            is_late = time.monotonic() > end_s
            try:
                found = self._server.find(path, Json)
                if found is None or is_late:
                    return found is None
                if deletes and "deletionTimestamp" not in found["metadata"]:
                    self._server.delete(path)
                    continue
            except RequestError as error:
                if is_late and error.is_temporary:
                    raise
                if not error.is_temporary and error.code != CONFLICT:
                    return False
            time.sleep(PAUSE_S)

    def _is_created(self, raw: Json) -> bool:
        """Whether this run created the object that is there."""
        found = self._found(raw)
        return found is not None and found["metadata"].get("labels", {}).get(LABEL) == self._run

    def _is_ready(self, deployment: Json) -> bool:
        status = self._server.get(self._path(deployment), Json).get("status", {})
        return bool(status.get("readyReplicas") == deployment["spec"]["replicas"])

    def _are_kinds_served(self) -> bool:
        found = self._server.find(KINDS, ResourceList) or ResourceList()
        served = {each.name for each in found.resources}
        return all(each.plural in served for each in DEFINITIONS)

    def _stored(self) -> tuple[list[str], list[str]]:
        """Objects of our kinds, by their paths: what Railwright itself created, and the rest."""
        own: list[str] = []
        of_users: list[str] = []
        for plural in (each.plural for each in DEFINITIONS):
            for each in self._all(f"{KINDS}/{plural}"):
                name, namespace = each["metadata"]["name"], each["metadata"].get("namespace")
                place = f"namespaces/{namespace}/" if namespace else ""
                is_own = plural in WRITTEN_BY_US or (plural, name) == (names.QUEUES, "default")
                (own if is_own else of_users).append(f"{place}{plural}/{name}")
        return own, of_users

    def _volumes(self) -> dict[str, bool]:
        """The volumes that were provisioned for the demo, and whether their class retains them."""
        return {
            f"persistentvolumes/{each['metadata']['name']}": each["spec"].get(RECLAIM) == "Retain"
            for each in self._all(VOLUMES)
            if each["spec"].get("claimRef", {}).get("namespace") == NAMESPACE
            and PROVISIONED_BY in each["metadata"].get("annotations", {})
        }

    def _all(self, path: str) -> list[Json]:
        """All objects; none if the cluster does not have the kind."""
        try:
            return self._server.items(path, Json)
        except RequestError as error:
            if error.code != NOT_FOUND:
                raise
            return []

    def _found(self, raw: Json) -> Json | None:
        return self._server.find(self._path(raw), Json)

    def _path(self, raw: Json) -> str:
        return f"{self._collection(raw)}/{raw['metadata']['name']}"

    def _collection(self, raw: Json) -> str:
        namespace = raw["metadata"].get("namespace")
        place = f"namespaces/{namespace}/" if namespace else ""
        return f"{_root(raw)}/{place}{self._plural(raw)}"

    def _plural(self, raw: Json) -> str:
        """The resource of a kind. Raises DemoRefused if the cluster does not have it."""
        key = raw["apiVersion"], raw["kind"]
        if key not in self._plurals:
            listed: Iterable[Any] = (self._server.find(_root(raw), Json) or {}).get("resources", ())
            found = [each["name"] for each in listed if each["kind"] == raw["kind"]]
            if not found:
                oldest = ".".join(map(str, doctor.OLDEST_VERSION))
                raise DemoRefused(f"the cluster has no {key[1]} of {key[0]}: it needs {oldest}")
            self._plurals[key] = min(found, key=len)
        return self._plurals[key]

    def _type(self, raw: Json) -> str:
        group, _, _ = raw["apiVersion"].rpartition("/")
        return f"{self._plural(raw)}.{group}" if group else self._plural(raw)

    def _argument(self, raw: Json) -> str:
        namespace = raw["metadata"].get("namespace")
        place = f"--namespace={namespace} " if namespace else ""
        return f"{place}{self._type(raw)}/{raw['metadata']['name']}"


def _root(raw: Json) -> str:
    return f"/apis/{raw['apiVersion']}" if "/" in raw["apiVersion"] else f"/api/{raw['apiVersion']}"


def _includes(found: Any, expected: Any) -> bool:
    """Whether an object has all that is expected. The API server adds defaults, and drops empty
    fields."""
    if found is None and expected in ({}, []):
        return True
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(_includes(found.get(name), each) for name, each in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_includes, found, expected))
    return bool(found == expected)
