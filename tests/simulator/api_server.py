"""An API server in memory, with the semantics of kube-apiserver over etcd.

Requests are carried out one at a time and at once. Nothing is random: the same requests at the same
times have the same responses. `test_simulated_api` compares it with a real API server.

Not simulated: the schemas of kinds (validation, defaults, pruning, canonical quantities), field
ownership, the admission plugins of the real server (also namespaces that do not exist), rights,
``dryRun``, ``generateName``, ``resourceVersion`` in gets and lists, foreground and orphaning
deletion, deletion of collections, and patches other than merge patches. The events of the groups
core and events.k8s.io are two collections here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from railwright_kube import projections, protobuf
from railwright_kube.client import MERGE_PATCH
from railwright_kube.transport import JSON
from simulator import deletion, object_updates, protobuf_lists, selectors, statuses
from simulator.resources import Target, parse
from simulator.selectors import Matches
from simulator.statuses import StatusError
from simulator.store import Store
from simulator.stored_objects import Change, StoredObject
from simulator.watches import ExpiredWatch, WatchCursor

Json = dict[str, Any]
Admit = Callable[[str, str, Json], Json]
"""An admission hook: gets "create" or "update", the path of the request and the object; returns the
object, or a changed copy, or raises StatusError."""

PRECONDITIONS = (("UID", "uid"), ("ResourceVersion", "resourceVersion"))
"""How messages name them, and their fields."""
CAUSES = {"UID": "deleted and then recreated", "ResourceVersion": "modified"}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request. ``body`` is decoded JSON; the server keeps parts of it, so it must not change."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None
    content_type: str = JSON
    accept: str = JSON


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response."""

    status: int
    body: bytes


class ApiServer:
    """The server and its store. ``wall_clock`` is seconds since the epoch.

    Each hook of ``admission`` is called for every create and update, bindings included. Each
    callback of ``on_change`` is called for every stored change, in order, at the end of the
    request; it may make requests.
    """

    def __init__(self, *, wall_clock: Callable[[], float]) -> None:
        self.admission: list[Admit] = []
        self._wall_clock = wall_clock
        self._store = Store()
        self._uids = 0

    def __repr__(self) -> str:
        return f"<ApiServer {self._store!r}>"

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self._store.version

    @property
    def on_change(self) -> list[Callable[[Change], None]]:
        """The callbacks for changes."""
        return self._store.on_change

    def objects(self, path: str) -> list[Json]:
        """The stored objects of a collection, by its path for the whole cluster, in no order. They
        must not be changed."""
        return [stored.object for stored in self._store.collections[path].objects.values()]

    def answer(self, request: ApiRequest) -> ApiResponse:
        """Carry out a request that is not a watch."""
        try:
            response = self._handle(request)
        except StatusError as error:
            response = ApiResponse(error.code, error.body())
        self._store.report()
        return response

    def request(self, method: str, path: str, body: Any = None, content_type: str = "") -> Any:
        """Carry out a request; return the decoded body. Raises StatusError."""
        type_ = content_type or (MERGE_PATCH if method == "PATCH" else JSON)
        response = self.answer(ApiRequest(method, path, {}, body, type_))
        found = orjson.loads(response.body)
        if response.status >= 400:
            details = found.get("details", {})
            reason = found.get("reason", "")
            raise StatusError(response.status, reason, found["message"], **details)
        return found

    def watch(self, request: ApiRequest) -> WatchCursor:
        """Open a watch. Raises StatusError for a request that is wrong; a version that was
        compacted causes an event of type ERROR, as in the real server."""
        target = _target(request)
        matches = selectors.parse(request.query)
        start = int(request.query.get("resourceVersion") or 0)
        if 0 < start < self._store.compacted:
            message = f"too old resource version: {start} ({self._store.compacted})"
            return ExpiredWatch(target.resource, statuses.expired(message))
        return WatchCursor(
            target.resource,
            self._store.collections[target.resource.path].position(start or self.version),
            version=start or self.version,
            namespace=target.namespace,
            matches=matches,
            newest=lambda: self.version,
            initial=() if start else self._page(target, self.version, matches=matches)[0],
        )

    def compact(self, version: int | None = None) -> None:
        """Forget the changes up to a version, by default all: older watches and continue tokens
        expire. The real server does this every five minutes, up to where it was at the last one."""
        self._store.compact(self.version if version is None else version)

    def collect_garbage(self) -> None:
        """Delete the objects whose owners do not exist, as the garbage collector does."""
        owners = self._store.owners
        while places := owners.take_candidates():
            for resource, key in places:
                stored = self._store.get(resource, key)
                if stored is None or not owners.is_garbage(stored.object):
                    continue
                if "deletionTimestamp" not in stored.object["metadata"]:
                    self._delete(stored, key, {})
        self._store.report()

    def _handle(self, request: ApiRequest) -> ApiResponse:
        target = _target(request)
        match request.method, bool(target.name), target.subresource:
            case "POST", False, _:
                sent = object_updates.without_deletion(request.body)
                return self._create(request, target, sent)
            case "POST", _, "binding":
                return self._bind(request, target)
            case "GET", False, _:
                return self._list(request, target)
            case "GET", _, "" | "status":
                return ApiResponse(200, self._stored(target).json)
            case "PUT", True, "" | "status":
                return self._replace(request, target)
            case "PATCH", True, "" | "status":
                return self._patch(request, target)
            case "DELETE", True, "":
                stored = self._stored(target)
                options = request.body or _delete_options(request.query)
                _check_preconditions(stored, options.get("preconditions") or {})
                return self._delete(stored, target.key, options)
        raise statuses.not_supported()

    def _list(self, request: ApiRequest, target: Target) -> ApiResponse:
        version, after = self.version, ""
        if token := request.query.get("continue", ""):
            position, _, after = token.partition("/")
            version = int(position)
            if version < self._store.compacted:
                message = "The provided continue parameter is too old to display a consistent list"
                raise statuses.expired(message)
        matches = selectors.parse(request.query)
        limit = int(request.query.get("limit") or 0)
        page, last = self._page(target, version, after=after, limit=limit, matches=matches)
        following = f"{version}/{last}" if last else ""
        kind, api_version = target.resource.kind, target.resource.api_version
        if request.accept.startswith(protobuf.ACCEPT) and kind in protobuf_lists.MESSAGES:
            items = (found.protobuf for found in page)
            return ApiResponse(200, protobuf_lists.page(version, following, items))
        encoded = (found.json_item for found in page)
        if request.accept == projections.METADATA_ONLY:
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
            encoded = (found.metadata_item for found in page)
        metadata = {"resourceVersion": str(version)}
        if following:
            metadata["continue"] = following
        head = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": metadata}
        body = b'%s,"items":[%s]}' % (orjson.dumps(head)[:-1], b",".join(encoded))
        return ApiResponse(200, body)

    def _page(
        self,
        target: Target,
        version: int,
        *,
        after: str = "",
        limit: int = 0,
        matches: Matches | None,
    ) -> tuple[list[StoredObject], str]:
        collection = self._store.collections[target.resource.path]
        return collection.page(
            target.namespace, version=version, after=after, limit=limit, matches=matches
        )

    def _create(self, request: ApiRequest, target: Target, sent: Json) -> ApiResponse:
        """Create the object that was sent; a PUT has its name in the path."""
        resource, metadata = target.resource, sent["metadata"]
        name = target.name or metadata.get("name", "")
        if not name:
            why = "name or generateName is required"
            raise statuses.invalid(resource, name, "metadata.name", why)
        if resource.namespaced and not target.namespace:
            raise statuses.not_supported()
        target = Target(resource, target.namespace, name, "")
        _check_names(target, sent)
        sent = self._admit("create", request, sent)
        if request.method == "POST" and metadata.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, "", message)
        stored = self._store.get(resource, target.key)
        if stored is not None:
            is_deleting = "deletionTimestamp" in stored.object["metadata"]
            raise statuses.already_exists(resource, name, deleting=is_deleting)
        self._uids += 1
        new = object_updates.created(
            resource,
            sent,
            namespace=target.namespace,
            uid=f"00000000-0000-4000-8000-{self._uids:012x}",
            now=self._now(),
        )
        return ApiResponse(201, self._store.put(resource, target.key, new).json)

    def _replace(self, request: ApiRequest, target: Target) -> ApiResponse:
        resource, sent = target.resource, request.body
        _check_names(target, sent)
        stored = self._store.get(resource, target.key)
        uid = sent["metadata"].get("uid", "")
        if stored is None and not resource.creates_on_update:
            raise statuses.not_found(resource, target.name)
        if uid and (stored is None or uid != stored.uid):
            found = "" if stored is None else stored.uid
            raise statuses.failed_precondition(resource, target.name, "UID", uid, found)
        if stored is None:
            return self._create(request, target, sent)
        return self._update(request, target, stored, sent)

    def _patch(self, request: ApiRequest, target: Target) -> ApiResponse:
        if request.content_type != MERGE_PATCH:
            raise statuses.unsupported_media_type(request.content_type)
        stored = self._stored(target)
        new = object_updates.merged(stored.object, request.body)
        _check_names(target, new)
        return self._update(request, target, stored, new)

    def _update(
        self, request: ApiRequest, target: Target, stored: StoredObject, sent: Json
    ) -> ApiResponse:
        """Replace an object, or its status, by the one that was sent."""
        resource, old = target.resource, stored.object
        sent = self._admit("update", request, sent)
        version = sent["metadata"].get("resourceVersion")
        if not version and not resource.unconditional:
            why = "must be specified for an update"
            raise statuses.invalid(resource, target.name, "metadata.resourceVersion", why)
        if version and version != old["metadata"]["resourceVersion"]:
            raise statuses.stale(resource, target.name)
        if target.subresource:
            new = object_updates.with_status(resource, old, sent)
        else:
            new = object_updates.replaced(resource, old, sent)
        if field := object_updates.immutable_change(resource, old, new):
            raise statuses.invalid(resource, target.name, field, "field is immutable")
        if deletion.is_over(old["metadata"]) and not new["metadata"].get("finalizers"):
            self._store.remove(resource, target.key)
            return ApiResponse(200, orjson.dumps(new))
        if new != old:
            stored = self._store.put(resource, target.key, new)
        return ApiResponse(200, stored.json)

    def _bind(self, request: ApiRequest, target: Target) -> ApiResponse:
        resource, name, sent = target.resource, target.name, request.body
        if sent["metadata"].get("name") != name:
            raise statuses.bad_request("name in URL does not match name in Binding object")
        sent = self._admit("create", request, sent)
        stored = self._stored(target)
        pod = stored.object
        for label, field in PRECONDITIONS:
            expected, found = sent["metadata"].get(field, ""), pod["metadata"][field]
            if expected and expected != found:
                raise statuses.failed_precondition(resource, name, label, expected, found)
        why = ""
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif node := pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{node}"'
        if why:
            raise statuses.conflict(resource, name, why, kind="pods/binding")
        new = object_updates.bound(pod, sent["target"]["name"], now=self._now())
        self._store.put(resource, target.key, new)
        return ApiResponse(201, orjson.dumps(statuses.success(code=201)))

    def _delete(self, stored: StoredObject, key: str, options: Json) -> ApiResponse:
        resource, old = stored.resource, stored.object
        effect = deletion.delete(resource, old, options, now_s=self._wall_clock())
        if effect.marked != old:
            stored = self._store.put(resource, key, effect.marked)
        if not effect.removed:
            return ApiResponse(200, stored.json)
        last = self._store.remove(resource, key)
        if resource.returns_deleted:
            return ApiResponse(200, last.json)
        details = resource.details(last.name) | {"uid": last.uid}
        return ApiResponse(200, orjson.dumps(statuses.success(details=details)))

    def _admit(self, verb: str, request: ApiRequest, sent: Json) -> Json:
        for admit in self.admission:
            sent = admit(verb, request.path, sent)
        return sent

    def _stored(self, target: Target) -> StoredObject:
        stored = self._store.get(target.resource, target.key)
        if stored is None:
            raise statuses.not_found(target.resource, target.name)
        return stored

    def _now(self) -> str:
        return deletion.format_time(self._wall_clock())


def _target(request: ApiRequest) -> Target:
    target = parse(request.path)
    if target is None:
        raise statuses.no_such_path()
    if target.is_served:
        return target
    if target.resource.custom:
        raise statuses.not_found(target.resource, target.name)
    raise statuses.no_such_path()


def _check_names(target: Target, sent: Json) -> None:
    """Raise an error if the object has another name or namespace than the path."""
    metadata = sent["metadata"]
    is_namespaced = target.resource.namespaced
    if is_namespaced and metadata.get("namespace", target.namespace) != target.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.get("name") != target.name:
        raise statuses.bad_request(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL"
            f" ({target.name})"
        )


def _delete_options(query: Mapping[str, str]) -> Json:
    grace_s = query.get("gracePeriodSeconds")
    return {} if grace_s is None else {"gracePeriodSeconds": int(grace_s)}


def _check_preconditions(stored: StoredObject, preconditions: Mapping[str, str]) -> None:
    for label, field in PRECONDITIONS:
        expected, found = preconditions.get(field), stored.object["metadata"][field]
        if expected is not None and expected != found:
            why = (
                f"the {label} in the precondition ({expected}) does not match the {label} in record"
                f" ({found}). The object might have been {CAUSES[label]}"
            )
            raise statuses.conflict(stored.resource, stored.name, why, kind=stored.resource.kind)
