"""A leader as a coroutine: it yields each request before it is sent, and is given the answer.

So a run can stop it between any two writes, for ever or for a while, and send what it was about to
send long after another leader took over. The order is the operator's: raise the epoch, ask for all
lists, and then in each turn the ledger, the actions one by one, the records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial

from railwright_scheduler import turn
from railwright_scheduler.attempt.gang import Action, BindPod, CreatePod, WritePlacement
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.decisions import Reason
from railwright_scheduler.simulator.api import Answer, Api, Guards, JobObject, Request
from railwright_scheduler.simulator.view import View
from railwright_scheduler.turn import Turn

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Intent:
    """What a leader is about to do; at the end of a turn nothing, and who waits for what."""

    name: str
    send: Request | None = None
    waits: Mapping[str, Reason] = field(default_factory=dict)


Leading = Generator[Intent, Answer, None]


def lead(holder: str, api: Api, view: View, *, clock: Clock, guards: Guards) -> Leading:
    """Lead until another does; ``view`` is listed anew once the epoch is written."""
    epoch = yield from _take_over(holder, api)
    view.relist()
    while True:
        ledger, version = api.ledger, api.ledger_version
        if ledger.epoch != epoch:
            return
        while True:
            # A record is only good for the very version of the job that it was derived from.
            jobs = dict(view.jobs.objects)
            plan = turn.take(view.world(ledger, now_s=clock()))
            if not guards.ledger_first:
                yield from _act(plan, api, view)
            if plan.ledger != ledger:
                answer = yield _put_ledger(api, plan.ledger, version)
                if answer is not Answer.DONE:
                    break
                ledger, version = plan.ledger, version + 1
            yield from _act(plan, api, view)
            yield from _record(plan, api, jobs)
            yield Intent("rest", waits=plan.waits)


def _take_over(holder: str, api: Api) -> Generator[Intent, Answer, int]:
    while True:
        taken = api.ledger.taken_over(holder)
        yield _put_ledger(api, taken, api.ledger_version)
        # Whatever the answer was, or if there was none: what is stored tells.
        if (api.ledger.epoch, api.ledger.holder) == (taken.epoch, holder):
            return taken.epoch


def _act(plan: Turn, api: Api, view: View) -> Leading:
    for action in plan.actions:
        answer = yield Intent(_name(action), _request(action, api))
        if answer is Answer.REFUSED:
            key = action.entry.key
            view.refusals[key] = f"{_name(action)} was refused"


def _record(plan: Turn, api: Api, jobs: Mapping[str, JobObject]) -> Leading:
    for uid, record in plan.records.items():
        job = jobs[uid]
        if job.record != record:
            name = f"record {uid} {record.phase} {record.attempt}/{record.ended}"
            yield Intent(name, partial(api.put_record, uid, record, job.version))


def _put_ledger(api: Api, ledger: Ledger, version: int) -> Intent:
    entries = " ".join(f"{e.job_uid}/{e.attempt}:{e.state}" for e in ledger.entries)
    return Intent(f"ledger {ledger.epoch} [{entries}]", partial(api.put_ledger, ledger, version))


def _request(action: Action, api: Api) -> Request:
    entry = action.entry
    if isinstance(action, WritePlacement):
        return partial(api.put_placement, entry)
    if isinstance(action, CreatePod):
        return partial(api.create_pod, entry, action.node_rank)
    pod = action.pod
    if isinstance(action, BindPod):
        return partial(api.bind_pod, pod.name, pod.uid, entry.nodes[pod.node_rank])
    return partial(api.delete_pod, pod.name, pod.uid)


def _name(action: Action) -> str:
    verb = type(action).__name__
    rank = action.node_rank if isinstance(action, CreatePod) else ""
    pod = "" if isinstance(action, WritePlacement | CreatePod) else action.pod.name
    return f"{verb} {action.entry.job_uid}/{action.entry.attempt} {rank}{pod}"
