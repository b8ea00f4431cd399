"""Those that lead or think they do: one holds the Lease, the others may have one request under way.

The Lease is asked for right before each request is made up, so a leader that lost it while held up
still sends the one it had ready, and no other. What it sent and got no answer to may be lost, done,
or adrift: done at any time later, whoever leads by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from railwright_scheduler.decisions import Reason
from railwright_scheduler.simulator.api import Answer, Api, Guards, Request
from railwright_scheduler.simulator.chance import Chance
from railwright_scheduler.simulator.leader import Intent, Leading, lead
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.view import View

CONTENDERS_MAX = 4
REQUESTS_MAX = 2000


@dataclass(slots=True)
class _Contender:
    name: str
    view: View
    leading: Leading
    ready: Intent
    paused: bool = False


class Contenders:
    """All leaders that are not dead, and who holds the Lease."""

    def __init__(self, api: Api, machines: Machines, guards: Guards) -> None:
        self._api = api
        self._machines = machines
        self._guards = guards
        self._all: list[_Contender] = []
        self._adrift: list[tuple[str, Request]] = []
        self._born = 0
        self._holder = ""
        self.now_s = 0
        self.waits: Mapping[str, Reason] = {}

    def take_over(self) -> str:
        """A new leader gets the Lease, whatever the last one does."""
        self._born += 1
        name = f"leader{self._born}"
        view = View(self._api, self._machines)
        leading = lead(name, self._api, view, clock=lambda: self.now_s, guards=self._guards)
        self._holder = name
        self._all.append(_Contender(name, view, leading, next(leading)))
        del self._all[:-CONTENDERS_MAX]
        return name

    def act(self, chance: Chance, *, lost_permille: int) -> str:
        """One of them sends what it had ready, and makes up its mind about the next."""
        awake = [contender for contender in self._all if not contender.paused]
        if not awake:
            return ""
        contender = chance.pick(awake)
        intent = contender.ready
        answer = self._send(contender.name, intent, chance, lost_permille)
        self._go_on(contender, answer)
        return f"{contender.name} {intent.name}: {answer}" if intent.send else ""

    def watch(self, chance: Chance) -> str:
        """Some events reach one of them."""
        if self._all:
            contender = chance.pick(self._all)
            contender.view.catch_up(chance.below(4), 1 + chance.below(8))
        return ""

    def hold_up(self, how: str, chance: Chance) -> str:
        """One of them crashes, stops for a while, or goes on."""
        if not self._all:
            return ""
        contender = chance.pick(self._all)
        if how == "crash":
            self._all.remove(contender)
        contender.paused = how == "pause"
        return contender.name

    def late(self, chance: Chance) -> str:
        """A request that was given up arrives."""
        if not self._adrift:
            return ""
        name, send = self._adrift.pop(chance.below(len(self._adrift)))
        return f"{name}: {send()}"

    def flush(self) -> Iterator[tuple[str, Answer]]:
        """All is sent that is adrift or ready; only the holder of the Lease goes on."""
        for name, send in self._adrift:
            yield name, send()
        self._adrift.clear()
        for contender in self._all:
            if contender.name != self._holder and contender.ready.send is not None:
                yield f"{contender.name} {contender.ready.name}", contender.ready.send()
        self._all = [contender for contender in self._all if contender.name == self._holder]

    def one_turn(self) -> Iterator[tuple[str, Answer]]:
        """The one leader, up to date, ends the turn it is in and takes a whole one."""
        if not self._all:
            self.take_over()
        contender = self._all[0]
        contender.paused = False
        for table in range(4):
            contender.view.catch_up(table, 10**6)
        for _ in range(REQUESTS_MAX):
            intent = contender.ready
            answer = Answer.DONE if intent.send is None else intent.send()
            if intent.send is None:
                self.waits = intent.waits
            else:
                yield f"{contender.name} {intent.name}", answer
            self._go_on(contender, answer)
            if contender not in self._all or intent.send is None:
                return
        raise AssertionError(f"a turn of more than {REQUESTS_MAX} requests")

    def _send(self, name: str, intent: Intent, chance: Chance, lost_permille: int) -> Answer:
        if intent.send is None:
            return Answer.DONE
        if chance.happens(lost_permille):
            if chance.happens(500):
                self._adrift.append((f"{name} {intent.name}", intent.send))
            return Answer.UNKNOWN
        answer = intent.send()
        return Answer.UNKNOWN if chance.happens(lost_permille) else answer

    def _go_on(self, contender: _Contender, answer: Answer) -> None:
        """Think on, and stop for good where the next request finds the Lease gone."""
        if contender.name != self._holder:
            self._all.remove(contender)
            return
        try:
            contender.ready = contender.leading.send(answer)
        except StopIteration:
            self._all.remove(contender)
