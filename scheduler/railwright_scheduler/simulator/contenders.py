"""The leader, and processes that still take themselves for the leader without the Lease.

The requests of a cycle are in flight together: they land in any order, some of them long after
their sender crashed, stopped or was deposed, and responses may be lost or late. A leader checks the
Lease right before each request; a ``blind`` one (its clock stopped, or its check is old) acts as
the leader until the run comes to rest. Correctness must not depend on the Lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from railwright_scheduler import invariants
from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.executor import Executor
from railwright_scheduler.simulator.leader import CONFIRM, Batch, Leading, Rest, lead
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.objects import LOST, Reply, Request
from railwright_scheduler.simulator.seeded_random import SeededRandom
from railwright_scheduler.simulator.view import View

CONTENDERS_MAX = 4
BATCHES_MAX = 100
BEHIND_MAX = 8
CLOCK_ERRORS_S = (0, 0, 0, -400, 60, 1_000, 10**8)
LATE_PERMILLE = 250
IMPATIENT_PERMILLE = 100


@dataclass(slots=True)
class Faults:
    """How often, of a thousand, a message is lost and a leader does not notice that it is none."""

    lost_permille: int
    blind_permille: int


@dataclass(slots=True)
class _Sent:
    """A request under way, and its answer once it landed."""

    request: Request
    reply: Reply | None = None


@dataclass(slots=True)
class _Contender:
    name: str
    view: View
    leading: Leading
    blind: bool
    now: Batch | Rest | None = None
    under_way: dict[object, _Sent] = field(default_factory=dict)
    paused: bool = False

    def think(self) -> bool:
        """Make up the next requests; False when there is nothing more to lead."""
        self.now = next(self.leading, None)
        if isinstance(self.now, Batch):
            for request in self.now.requests:
                self.under_way.setdefault(request.key, _Sent(request))
        return self.now is not None

    def waits(self) -> bool:
        """Whether it has to wait for an answer before it goes on."""
        if not isinstance(self.now, Batch):
            return False
        return any(request.key in self.under_way for request in self.now.requests)

    def on_reply(self, sent: _Sent) -> None:
        """An answer arrives, or is known not to."""
        assert sent.reply is not None, sent
        del self.under_way[sent.request.key]
        sent.request.on_reply(sent.reply)


class Contenders:
    """All live leaders, and the holder of the Lease."""

    def __init__(
        self,
        api: Api,
        machines: Machines,
        rng: SeededRandom,
        faults: Faults,
        *,
        clocks: SeededRandom | None = None,
    ) -> None:
        """``clocks`` draws how wrong each leader's wall clock is; without it none is."""
        self._api = api
        self._machines = machines
        self._random = rng
        self._faults = faults
        self._clocks = clocks
        self._all: list[_Contender] = []
        self._adrift: list[Request] = []
        self._born = 0
        self._holder = ""
        self.now_s = 0
        self.waits: Mapping[str, Reason] = {}
        self.writes_sent = 0
        self._costs: dict[AttemptKey, int] = {}

    @property
    def has_leader(self) -> bool:
        """Whether there is a leader."""
        return bool(self._all)

    def take_over(self) -> str:
        """A new leader gets the Lease, whatever the last one does."""
        self._born += 1
        name = f"leader{self._born}"
        view = View(
            self._api,
            self._machines,
            behind=self._random.below(BEHIND_MAX),
            clock_error_s=0 if self._clocks is None else self._clocks.pick(CLOCK_ERRORS_S),
        )
        executor = Executor(self._api, view.pods, view.jobs)
        self._holder = name
        contender = _Contender(
            name,
            view,
            lead(name, self._api, view, executor, clock=lambda: self.now_s),
            blind=self._random.happens(self._faults.blind_permille),
        )
        contender.think()
        self._all.append(contender)
        if len(self._all) > CONTENDERS_MAX:
            self._end(self._all[0])
        return name

    def act(self) -> str:
        """A request of one of them lands, or an answer reaches it, or it goes on."""
        awake = [contender for contender in self._all if not contender.paused]
        if not awake:
            return ""
        rng = self._random
        contender = rng.pick(awake)
        impatient = isinstance(contender.now, Batch) and not contender.now.patient
        if contender.under_way and not (impatient and rng.happens(IMPATIENT_PERMILLE)):
            lost_permille = self._faults.lost_permille
            event = self._advance(
                contender, lost_permille=lost_permille, late_permille=LATE_PERMILLE
            )
            if contender.waits():
                return event
        else:
            event = ""
        self._go_on(contender)
        return event

    def watch(self, how: str) -> str:
        """Some events reach one of them, or are lost on their way; or a watch has to begin anew."""
        if not self._all:
            return ""
        rng = self._random
        contender = rng.pick(self._all)
        copy = rng.pick(list(contender.view.kinds.values()))
        if how == "watch":
            copy.catch_up(1 + rng.below(8))
        elif how == "watch missed":
            copy.miss(1 + rng.below(3))
        else:
            copy.cut()
        return ""

    def hold_up(self, how: str) -> str:
        """One of them crashes, stops for a while, or goes on."""
        if not self._all:
            return ""
        contender = self._random.pick(self._all)
        contender.paused = how == "pause"
        if how == "crash":
            self._end(contender)
        return contender.name

    def late(self) -> str:
        """A request arrives that was given up, or whose sender is stopped."""
        stopped = [
            sent
            for contender in self._all
            if contender.paused
            for sent in contender.under_way.values()
            if sent.reply is None
        ]
        which = self._random.below(len(self._adrift) + len(stopped) or 1)
        if which < len(self._adrift):
            return _land(self._adrift.pop(which))[1]
        if not stopped:
            return ""
        sent = stopped[which - len(self._adrift)]
        sent.reply, event = _land(sent.request)
        return event

    def flush(self) -> Iterator[str]:
        """All lands that is under way; only the holder of the Lease goes on, and lists anew:
        what a watch lost silently is found by the next list."""
        self._costs.clear()
        for contender in list(self._all):
            if contender.name != self._holder:
                self._adrift += [sent.request for sent in contender.under_way.values()]
                self._all.remove(contender)
            for copy in contender.view.kinds.values():
                copy.cut()
        while self._adrift:
            yield _land(self._adrift.pop(self._random.below(len(self._adrift))))[1]

    def one_turn(self) -> Iterator[str]:
        """Let the one leader, up to date, end its cycle and run a complete one."""
        if not self._all:
            self.take_over()
        contender = self._all[0]
        contender.paused = False
        for copy in list(contender.view.kinds.values()):
            copy.catch_up(10**6)
        for _ in range(BATCHES_MAX):
            while contender.under_way:
                yield self._advance(contender, lost_permille=0, late_permille=0)
            if not self._go_on(contender):
                return
            if isinstance(contender.now, Rest):
                self.waits = contender.now.waits
                return
        raise AssertionError(f"a cycle of more than {BATCHES_MAX} steps")

    def check_rest(self) -> None:
        """I17: the leader's caches equal the stored objects. I20: its requests since ``flush``."""
        for key, requests in self._costs.items():
            pods = max(self._api.sizes[key], self._api.made.get(key, 0))
            invariants.check_cost(key, requests=requests, pods=pods)
        for contender in self._all:
            for kind, copy in contender.view.kinds.items():
                invariants.check_copy(kind, copy.objects, copy.table.objects)

    def _advance(self, contender: _Contender, *, lost_permille: int, late_permille: int) -> str:
        """One request under way lands, or its answer arrives, or both."""
        sent = self._random.pick(list(contender.under_way.values()))
        event = ""
        if sent.reply is None:
            sent.reply, event = self._send(sent.request, lost_permille)
            if self._random.happens(late_permille):
                return event
        contender.on_reply(sent)
        return event

    def _send(self, request: Request, lost_permille: int) -> tuple[Reply, str]:
        if not self._random.happens(lost_permille):
            reply, event = _land(request)
            return (LOST if self._random.happens(lost_permille) else reply), event
        if self._random.happens(500):
            self._adrift.append(request)
        return LOST, f"{request.name}: lost"

    def _go_on(self, contender: _Contender) -> bool:
        """Continue; stop if the loss of the Lease is noticed, or of the epoch."""
        deposed = contender.name != self._holder and not contender.blind
        if deposed or not contender.think():
            self._end(contender)
            return False
        if isinstance(contender.now, Batch):
            self.writes_sent += sum(request.key != CONFIRM for request in contender.now.requests)
            for request in contender.now.requests:
                if request.attempt is not None:
                    self._costs[request.attempt] = self._costs.get(request.attempt, 0) + 1
        return True

    def _end(self, contender: _Contender) -> None:
        """It is no more; what it sent may still arrive."""
        self._all.remove(contender)
        self._adrift += [
            sent.request
            for sent in contender.under_way.values()
            if sent.reply is None and self._random.happens(500)
        ]


def _land(request: Request) -> tuple[Reply, str]:
    reply = request.land()
    return reply, f"{request.name}: {reply.status}"
