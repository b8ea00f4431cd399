"""What goes wrong between a client and the API server, and for which messages.

A rule reads like a line of RBAC: ``create pods/binding``, ``write *``, ``watch pods``, ``deleted
pods``. What it is about is a request, or one event of a watch; most faults can happen to both.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

GROUPS = {
    "read": frozenset({"get", "list", "continue", "watch"}),
    "write": frozenset({"create", "update", "patch", "delete"}),
    "event": frozenset({"added", "modified", "deleted", "bookmark", "error"}),
}
"""Verbs that stand for several."""

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Fault(StrEnum):
    """What befalls a message. An event of a watch is a reply: losing it breaks the watch."""

    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    REQUEST_HELD = "request held"
    REPLY_HELD = "reply held"
    SILENCE = "silence"
    """As behind a cable that was pulled: nothing comes, nothing goes, no connection breaks."""
    TWICE = "twice"


@dataclass(frozen=True, slots=True)
class Late:
    """It takes so much longer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that the server never gave; in the place of an event, an ERROR of this code."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another API server gets it, reached like this."""

    url: str
    tls: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class Strike:
    """``act``, before the request is passed on or after it was carried out; nobody is answered.

    Of all that a rule with this fault meets, the first strikes, and the rest comes to nothing.
    """

    act: Callable[[], None]
    carried_out: bool


AnyFault = Fault | Late | Reply | Elsewhere | Strike


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an event. ``what`` is the resource, and the subresource after a slash.

    The further pages of a list have a verb of their own, ``continue``.
    """

    verb: str
    what: str
    namespace: str = ""
    name: str = ""

    def is_of(self, selector: str) -> bool:
        """Whether ``selector``, a verb or a group of verbs and a resource, means this message."""
        verb, _, what = selector.partition(" ")
        if what not in (self.what, "*", ""):
            return False
        return verb in (self.verb, "*") or self.verb in GROUPS.get(verb, ())


def request(method: str, path: str, query: Mapping[str, str]) -> Message:
    """The message of an HTTP request to the API server."""
    parts = path.strip("/").split("/")
    rest = parts[2 if parts[0] == "api" else 3 :]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "", "")[:3]
    what = f"{resource}/{subresource}" if subresource else resource
    return Message(_verb(method, name, query), what, namespace, name)


def event(watch: Message, content: Mapping[str, Any]) -> Message:
    """The message of one decoded line of a watch."""
    metadata = content["object"].get("metadata", {})
    place = metadata.get("namespace", ""), metadata.get("name", "")
    return Message(content["type"].lower(), watch.what, *place)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in _WRITES:
        return _WRITES[method]
    if "watch" in query:
        return "watch"
    if "continue" in query:
        return "continue"
    return "get" if name else "list"


class Rule:
    """Which messages meet a fault: those selected, from the ``first`` on, so many ``times``.

    ``times`` None is until lifted. With a ``probability`` below 1 each of them meets it by chance,
    the same for the same seed and order.
    """

    def __init__(
        self,
        selector: str,
        fault: AnyFault,
        *,
        loop: asyncio.AbstractEventLoop,
        first: int = 1,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
        namespace: str = "",
    ) -> None:
        self.fault = fault
        self.met = 0
        self._selector = selector
        self._loop = loop
        self._first = first
        self._times = times
        self._probability = probability
        self._chance = random.Random(seed)
        self._namespace = namespace
        self._matched = 0
        self._is_lifted = False
        self._lifted = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Rule {self._selector}: {self.fault!r} matched={self._matched} met={self.met}>"

    def meets(self, message: Message) -> bool:
        """Count this message; whether it meets the fault."""
        if self._is_lifted or not message.is_of(self._selector):
            return False
        if self._namespace not in ("", message.namespace):
            return False
        self._matched += 1
        if self._matched < self._first or self.met == self._times:
            return False
        if self._probability < 1 and self._chance.random() >= self._probability:
            return False
        self.met += 1
        return True

    def lift(self) -> None:
        """No message meets it any more, and what it held goes on. From any thread."""
        self._is_lifted = True
        self._loop.call_soon_threadsafe(self._lifted.set)

    async def lifted(self, *, within_s: float | None = None) -> None:
        """Return once it is, or when so many seconds have passed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lifted.wait(), within_s)
