"""The executor: turns the actions of a plan into requests with preconditions, safe to repeat.

It decides nothing. A request that the API server will never accept (a quota, a policy, a taken
name) becomes the refusal of its attempt, which is part of the next state. If the outcome of a
request is unknown, the object is read. A request that failed for now is repeated by a later cycle
from the observed state, with back-off; so is a refused deletion, the only one to be planned again.
A cycle starts requests and does not wait for their responses: a slow admission webhook must not
delay the assessment of other jobs, nor a gang's bindings those of another one. A request in flight
is not started twice. The end of an attempt's last request wakes the next cycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_kube import bodies, errors, paths
from railwright_kube.backoff import Backoff
from railwright_kube.client import WRITES_MAX, Api
from railwright_kube.in_flight import RequestsInFlight
from railwright_kube.reflector import Reflector
from railwright_operator.watch import owned, records
from railwright_operator.watch.owned import PlacementRecord
from railwright_operator.watch.records import PodRecord
from railwright_scheduler.attempt.gang import Action, BindPod, CreatePod, DeletePod, WritePlacement
from railwright_scheduler.attempt.ledger import AttemptKey, Entry

logger = logging.getLogger(__name__)

ActionKey = tuple[str, AttemptKey, str]
Request = Callable[[], Coroutine[Any, Any, None]]
Manifest = Mapping[str, Any]
RenderPod = Callable[[Entry, int], Manifest | None]
"""The pod of one node rank of an attempt; None when its job is gone."""
RenderPlacement = Callable[[Entry], Manifest | None]
"""The Placement of an attempt; None when its job is gone."""

REFUSAL_LENGTH_MAX = 900

UNDER_WAY_MAX = 512
"""Enough to keep the API server busy until the next cycle, and few that outlive their reason."""

UNDER_WAY_LOW = 2 * WRITES_MAX
"""With more in flight than twice those that the client sends at a time, another cycle would not
help."""

LATE_S = 3.0
TROUBLED_MAX = 64
"""The limit for all attempts with a failed request, or one without a response for ``LATE_S``: an
admission webhook of their namespaces may be slow."""

PAUSE_S = Backoff(0.5, 8.0)

FOR_GOOD = (
    errors.BadRequestError,
    errors.InvalidError,
    errors.ForbiddenError,
    errors.AlreadyExistsError,
)


@dataclass(eq=False, repr=False)
class Executor:
    """Carries out actions. Its state is the refusals and the written Placements.

    A slow webhook delays only the gangs of its namespace: troubled
    attempts come after all others, and have ``TROUBLED_MAX`` places of their own.
    """

    api: Api
    _: KW_ONLY
    pods: Reflector[PodRecord]
    placements: Reflector[PlacementRecord]
    render_pod: RenderPod
    render_placement: RenderPlacement
    wake: Callable[[], None]
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._placed: set[AttemptKey] = set()
        self._refusals: dict[AttemptKey, str] = {}
        self._hindrances: dict[AttemptKey, str] = {}
        self._troubled: frozenset[AttemptKey] = frozenset()
        self._troubled_under_way = 0
        self._left: Counter[AttemptKey] = Counter()
        self._low = asyncio.Event()
        self._low.set()
        self._crowded_out: frozenset[AttemptKey] = frozenset()
        self._ended_since: set[ActionKey] = set()
        self._requests: RequestsInFlight[ActionKey] = RequestsInFlight(
            backoff=PAUSE_S,
            clock=self.clock,
            rng=self.rng,
            on_end=self._ended,
        )

    def placed(self, key: AttemptKey) -> bool:
        """Whether this attempt's Placement was written."""
        return key in self._placed

    def refusal(self, key: AttemptKey) -> str | None:
        """The API server's message for a request of this attempt that it will never accept."""
        return self._refusals.get(key)

    def hindrance(self, key: AttemptKey) -> str:
        """The last temporary failure of this attempt; empty after a success."""
        return self._hindrances.get(key, "")

    def is_binding(self, key: AttemptKey) -> bool:
        """Whether a request to bind a pod of this attempt is in flight."""
        return key in self._left and any(
            verb == "bind" and attempt == key for verb, attempt, _ in self._requests
        )

    def is_crowded_out(self, key: AttemptKey) -> bool:
        """Whether the limits left no request of this attempt in the last cycle."""
        return key in self._crowded_out and key not in self._left

    def forget_all_but(self, keys: Iterable[AttemptKey]) -> None:
        """Drop the state of attempts that are not in the ledger, and have no pods to delete."""
        kept = set(keys)
        self._placed &= kept
        self._refusals = {key: why for key, why in self._refusals.items() if key in kept}
        self._hindrances = {key: why for key, why in self._hindrances.items() if key in kept}
        self._requests.forget_unless(lambda key: key[1] in kept)

    async def until_low(self) -> None:
        """Wait until few requests are in flight."""
        await self._low.wait()

    def cycle_begins(self) -> None:
        """Note that a state is being built, which includes all requests that ended before."""
        self._ended_since.clear()

    def start(self, actions: Iterable[Action]) -> None:
        """Start actions that are not in flight or paused, up to ``UNDER_WAY_MAX``.

        An action that ended since the cycle began is skipped, as the plan is older than its end.
        """
        late = Counter(attempt for _, attempt, _ in self._requests.late(LATE_S))
        self._troubled = troubled = frozenset(self._hindrances.keys() | late.keys())
        ordered = [*actions]
        if troubled:
            ordered.sort(key=lambda action: _trouble(action, late, troubled))
        under_way = Counter(attempt in troubled for _, attempt, _ in self._requests)
        self._crowded_out = frozenset()
        for at, action in enumerate(ordered):
            (key, request), is_troubled = self._request(action), action.entry.key in troubled
            if under_way[is_troubled] >= (TROUBLED_MAX if is_troubled else UNDER_WAY_MAX):
                self._crowded_out = frozenset(behind.entry.key for behind in ordered[at:])
                break
            if key not in self._ended_since and self._requests.is_due(key):
                self._requests.start(key, request())
                under_way[is_troubled] += 1
                self._left[action.entry.key] += 1
        self._troubled_under_way = under_way[True]
        if self._is_low():
            self._low.set()
        else:
            self._low.clear()

    def _is_low(self) -> bool:
        return len(self._requests) - self._troubled_under_way < UNDER_WAY_LOW

    def _ended(self, key: ActionKey, error: BaseException | None) -> None:
        self._record_outcome(key, error)
        self._ended_since.add(key)
        attempt = key[1]
        self._troubled_under_way -= attempt in self._troubled
        self._left[attempt] -= 1
        if not self._left[attempt]:
            del self._left[attempt]
            self.wake()
        elif self._crowded_out and self._is_low():
            self.wake()
        if self._is_low():
            self._low.set()

    def _record_outcome(self, key: ActionKey, error: BaseException | None) -> None:
        verb, attempt, _ = key
        extra = {"job_uid": attempt[0], "attempt": attempt[1], "action": verb, "error": str(error)}
        match error:
            case None:
                self._hindrances.pop(attempt, None)
            case errors.ApiError() if isinstance(error, FOR_GOOD):
                self._refusals[attempt] = error.message[:REFUSAL_LENGTH_MAX]
                logger.warning("request refused", extra=extra)
            case errors.RequestFailed():
                self._hindrances[attempt] = str(error)[:REFUSAL_LENGTH_MAX]
                logger.warning("request failed", extra=extra)
            case _:
                self._hindrances[attempt] = f"{type(error).__name__}: {error}"[:REFUSAL_LENGTH_MAX]
                logger.error("request raised", exc_info=error, extra=extra)

    def _request(self, action: Action) -> tuple[ActionKey, Request]:
        match action:
            case WritePlacement(entry):
                return ("place", entry.key, ""), partial(self._write_placement, entry)
            case CreatePod(entry, node_rank):
                request = partial(self._create, entry, node_rank)
                return ("create", entry.key, str(node_rank)), request
            case BindPod(entry, pod):
                node = entry.nodes[pod.node_rank]
                request = partial(self._bind, entry, pod.name, uid=pod.uid, node=node)
                return ("bind", entry.key, pod.uid), request
            case DeletePod(entry, pod):
                request = partial(self._delete, entry, pod.name, uid=pod.uid)
                return ("delete", entry.key, pod.uid), request

    async def _write_placement(self, entry: Entry) -> None:
        body = self.render_placement(entry)
        if body is None:
            return
        try:
            found = await self.api.create(routes.kind(names.PLACEMENTS, entry.namespace), body)
        except errors.AlreadyExistsError:
            name = body["metadata"]["name"]
            path = routes.one(names.PLACEMENTS, name, namespace=entry.namespace)
            found = await self.api.get(path)
            if found["spec"]["jobUID"] != entry.job_uid:
                # The pod will be deleted with its job.
                message = f"{name} is still there, of another job of this name"
                raise errors.ConflictError(409, "AlreadyExists", message=message) from None
            if found["spec"]["nodes"] != list(entry.nodes):
                message = f"{name} is there with other nodes, which the operator did not write"
                raise errors.ConflictError(409, "AlreadyExists", message=message) from None
        self.placements.absorb(owned.placement(owned.answered(found)))
        self._placed.add(entry.key)

    async def _create(self, entry: Entry, node_rank: int) -> None:
        body = self.render_pod(entry, node_rank)
        if body is None:
            return
        try:
            made = await self.api.create(paths.pods(entry.namespace), body)
        except (errors.OutcomeUnknown, errors.AlreadyExistsError) as error:
            try:
                made = await self.api.get(paths.pod(entry.namespace, body["metadata"]["name"]))
            except errors.NotFoundError:
                raise error from None  # Its reason is why there is no pod.
            is_taken = isinstance(error, errors.AlreadyExistsError)
            if is_taken and records.answered(made).job_uid != entry.job_uid:
                raise
        self.pods.absorb(records.answered(made))

    async def _bind(self, entry: Entry, name: str, *, uid: str, node: str) -> None:
        body = bodies.binding(name, uid, node=node)
        try:
            await self.api.create(paths.binding(entry.namespace, name), body)
        except (errors.ConflictError, errors.OutcomeUnknown):
            found = records.answered(await self.api.get(paths.pod(entry.namespace, name)))
            self.pods.absorb(found)
            if found.uid == uid and not (found.node or found.deleting):
                raise  # Such as a scheduling gate that a webhook has set; or a webhook is down.
            return
        held = self.pods.records.get(uid)
        if held is not None and not held.node:
            self.pods.absorb(replace(held, node=node))

    async def _delete(self, entry: Entry, name: str, *, uid: str) -> None:
        held = self.pods.records.get(uid)
        if held is None or held.deleting:
            return  # The watch has delivered its deletion since the plan.
        # Without a grace period the server deletes an unbound pod at once, by its own state.
        body = bodies.deletion(uid)
        try:
            answer = await self.api.delete(paths.pod(entry.namespace, name), body)
        except (errors.ConflictError, errors.NotFoundError):
            return  # The pod is gone or another one: the watch delivers the change.
        if answer.get("kind") == "Pod":
            self.pods.absorb(records.answered(answer))


def _trouble(action: Action, late: Mapping[AttemptKey, int], troubled: Set[AttemptKey]) -> int:
    """The order of an action: attempts without trouble first."""
    key = action.entry.key
    return 1 + late.get(key, 0) if key in troubled else 0
