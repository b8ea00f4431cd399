"""A leader as a coroutine: it yields its requests, and goes on with their responses.

So a run can stop it between any two writes, forever or for a time, and let its requests land long
after another leader took over. The order is the operator's: raise the epoch, list, and then in each
cycle the ledger, all actions together, all records together. The wait for actions is bounded; those
still in flight go on beside later cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial

from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.model.snapshot import Amounts
from railwright_scheduler.plan import Plan
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.executor import Executor
from railwright_scheduler.simulator.objects import Reply, ReplyStatus, Request
from railwright_scheduler.simulator.view import View

CONFIRM_INTERVAL_S = 10
CONFIRM = "confirm"
"""The one request that writes nothing."""

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that are sent together. ``patient``: all of them are waited for."""

    requests: tuple[Request, ...]
    patient: bool = True


@dataclass(frozen=True, slots=True)
class Rest:
    """The end of a cycle, and the waits of jobs."""

    waits: Mapping[str, Reason] = field(default_factory=dict)


Leading = Generator[Batch | Rest, None, None]


def lead(holder: str, api: Api, view: View, executor: Executor, *, clock: Clock) -> Leading:
    """Lead until another does; what is known of jobs and pods begins after the epoch is written."""
    store = yield from _take_over(holder, api, clock)
    view.relist()
    while True:
        jobs = view.jobs.stored()
        plan = view.plan(store.ledger, executor, now_s=clock())
        sure = True
        if plan.ledger != store.ledger:
            sure = yield from _write(store, plan.ledger, view.free())
        elif plan.confirms or clock() - store.confirmed_s >= CONFIRM_INTERVAL_S:
            sure = yield from _confirm(store)
        if store.deposed:
            return
        if not sure:
            continue
        yield from _act(plan, executor)
        records = view.with_checkpoints(plan.records)
        changed = [uid for uid in records if jobs[uid].value.record != records[uid]]
        if changed:
            yield Batch(tuple(executor.record(jobs[uid], records[uid]) for uid in changed))
        executor.forget_all_but(store.ledger)
        yield Rest(plan.waits)


@dataclass(slots=True)
class _Store:
    """The ledger as last written by this leader, and the version to write against."""

    api: Api
    ledger: Ledger
    version: int
    clock: Clock
    deposed: bool = False
    confirmed_s: int = 0

    def read(self) -> None:
        """Read it."""
        self.take(self.api.ledger, self.api.ledger_version)

    def take(self, found: Ledger, version: int) -> None:
        """This is what a read showed: only another leader's epoch ends this one."""
        self.deposed = (found.epoch, found.holder) != (self.ledger.epoch, self.ledger.holder)
        self.ledger, self.version, self.confirmed_s = found, version, self.clock()


def _take_over(holder: str, api: Api, clock: Clock) -> Generator[Batch, None, _Store]:
    while True:
        store = _Store(api, api.ledger.taken_over(holder), api.ledger_version, clock)
        yield _put_ledger(store, store.ledger, seen={}, on_reply=lambda reply: None)
        # Whatever the response was, or without one: the stored object counts.
        store.read()
        if not store.deposed:
            return store


def _write(
    store: _Store, ledger: Ledger, seen: Mapping[str, Amounts]
) -> Generator[Batch, None, bool]:
    """Whether it is written; if not, and not deposed either, it is planned again from what is."""
    replies: list[Reply] = []
    yield _put_ledger(store, ledger, seen=seen, on_reply=replies.append)
    if replies[0].status is ReplyStatus.DONE:
        store.take(ledger, replies[0].version)
        return True
    store.read()
    return store.ledger == ledger


def _confirm(store: _Store) -> Generator[Batch, None, bool]:
    """Whether the ledger is still this leader's own, after it saw the pods that it would bind."""
    held = store.ledger
    found: list[Ledger] = []
    replies: list[Reply] = []

    def land() -> Reply:
        found.append(store.api.ledger)
        return Reply(ReplyStatus.DONE, store.api.ledger_version)

    yield Batch((Request(CONFIRM, CONFIRM, land, replies.append),))
    if replies[0].status is not ReplyStatus.DONE:
        return False
    store.take(found[0], replies[0].version)
    return store.ledger == held


def _act(plan: Plan, executor: Executor) -> Leading:
    requests = [executor.request(action) for action in plan.actions]
    if requests:
        yield Batch(tuple(each for each in requests if each is not None), patient=False)


def _put_ledger(
    store: _Store, ledger: Ledger, *, seen: Mapping[str, Amounts], on_reply: Callable[[Reply], None]
) -> Batch:
    entries = " ".join(f"{e.job_uid}/{e.attempt}:{e.state}" for e in ledger.entries)
    name = f"ledger {ledger.epoch} [{entries}]"
    land = partial(store.api.put_ledger, ledger, store.version, seen=seen)
    return Batch((Request(name, "ledger", land, on_reply),))
