"""What a process can know: the versions of nodes and pods that its lists and watches brought it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from railwright_kube import paths, protobuf
from railwright_kube.projections import Projection
from simulator.api_server import ApiRequest, ApiResponse

NEWS_S = 5.0
"""How long news may take from a cache into a plan, and from there to the API server."""

PROJECTIONS: dict[str, Projection[Any]] = {paths.PODS: protobuf.POD, paths.NODES: protobuf.NODE}


class Deliveries:
    """The newest version of each kind that was delivered, with the times. After a lost event none
    counts until the next list. ``clock`` is virtual seconds.

    A list counts once a watch begins at its version or passes it: until then a list that verifies a
    cache corrects nothing there.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._versions: dict[str, deque[tuple[float, int]]] = {
            path: deque([(0.0, 0)]) for path in PROJECTIONS
        }
        self._incomplete: set[str] = set()
        self._listing: dict[str, int] = {}
        self._listed: dict[str, int] = {}

    def known_version(self) -> int:
        """The version up to which a plan that is sent now has all changes of nodes and pods."""
        since_s = self._clock() - NEWS_S
        return min(self._version(path, since_s) for path in self._versions)

    def listed(self, request: ApiRequest, response: ApiResponse, *, version: int) -> None:
        """A page of a list arrives; ``version`` is that of the server when the list began."""
        projection = PROJECTIONS.get(request.path)
        if projection is None or response.status != 200 or request.accept != projection.accept:
            return
        if "continue" not in request.query:
            self._listing[request.path] = version
        if request.path in self._listing and not projection.page(response.body).following:
            self._listed[request.path] = self._listing.pop(request.path)

    def watched(self, path: str, version: int) -> None:
        """Events up to this version arrive, or a watch begins there."""
        listed = self._listed.get(path)
        if listed is not None and version >= listed:
            self._incomplete.discard(path)
            del self._listed[path]
        if path in self._versions and path not in self._incomplete:
            self._add(path, version)

    def lost(self, path: str) -> None:
        """An event is lost."""
        self._incomplete.add(path)
        self._listing.pop(path, None)
        self._listed.pop(path, None)

    def _add(self, path: str, version: int) -> None:
        held = self._versions[path]
        held.append((self._clock(), version))
        while len(held) > 1 and held[1][0] < self._clock() - NEWS_S:
            held.popleft()

    def _version(self, path: str, since_s: float) -> int:
        """The newest version that had arrived by then; 0 if none had."""
        return max(
            (version for at_s, version in self._versions[path] if at_s <= since_s), default=0
        )
