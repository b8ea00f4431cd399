"""The errors of the simulated API server, with the bodies that the real one answers."""

from __future__ import annotations

from typing import Any

import orjson

from simulator.resources import Resource

Json = dict[str, Any]


class StatusError(Exception):
    """A refused request: the HTTP status, and the Status object in the body."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> Json:
        """The Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }

    def body(self) -> bytes:
        """The Status object in JSON."""
        return orjson.dumps(self.status())


def success(**fields: Any) -> Json:
    """The Status object of a request that has no other result."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **fields}


def bad_request(message: str) -> StatusError:
    """400: the request itself is wrong."""
    return StatusError(400, "BadRequest", message)


def no_such_path() -> StatusError:
    """404: the path is that of no resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def not_supported() -> StatusError:
    """405: the resource has no such operation."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message)


def not_found(resource: Resource, name: str) -> StatusError:
    """404: no object has this name."""
    message = f'{resource.qualified} "{name}" not found'
    return StatusError(404, "NotFound", message, **resource.details(name))


def already_exists(resource: Resource, name: str, *, deleting: bool) -> StatusError:
    """409: the name is taken, by an object that may be on its way out."""
    message = f'{resource.qualified} "{name}" already exists'
    message = f"object is being deleted: {message}" if deleting else message
    return StatusError(409, "AlreadyExists", message, **resource.details(name))


def conflict(resource: Resource, name: str, why: str, *, kind: str = "") -> StatusError:
    """409: a precondition does not hold. ``kind`` is what the message names the objects by."""
    kind = kind or resource.plural
    qualified = f"{kind}.{resource.group}" if resource.group else kind
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, **resource.details(name) | {"kind": kind})


def stale(resource: Resource, name: str) -> StatusError:
    """409: the object has another resourceVersion."""
    why = (
        "the object has been modified; please apply your changes to the latest version and try"
        " again"
    )
    return conflict(resource, name, why)


def failed_precondition(
    resource: Resource, name: str, field: str, expected: str, found: str
) -> StatusError:
    """409: a field has another value in the store, as etcd's layer words it."""
    why = (
        f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {found}"
    )
    return conflict(resource, name, why)


def unsupported_media_type(content_type: str) -> StatusError:
    """415: a patch of a type that is not simulated."""
    message = f"the body of the request was in an unknown format: {content_type}"
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(resource: Resource, name: str, field: str, why: str) -> StatusError:
    """422: a field has a value that is not allowed."""
    message = f'{resource.kind} "{name}" is invalid: {field}: {why}'
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    details = resource.details(name) | {"kind": resource.kind, "causes": [cause]}
    return StatusError(422, "Invalid", message, **details)


def expired(message: str) -> StatusError:
    """410: the version was compacted."""
    return StatusError(410, "Expired", message)
