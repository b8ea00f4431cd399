"""The ledger as an object: what is written is valid, reads back the same, and fences."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import attempts
from railwright_api.ledger import Ledger as LedgerObject
from railwright_kube import errors
from railwright_kube.client import Api
from railwright_operator.write import ledger as store
from railwright_operator.write.ledger import DeposedError, LedgerStore
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry, EntryRole, EntryState, Ledger
from railwright_scheduler.model.placement_score import (
    CrossDomainBytes,
    PlacementScore,
    PredictedStep,
)

WORDS = st.text(st.characters(codec="utf-8"), max_size=40)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True)

CAUSES = st.builds(
    Cause,
    code=st.sampled_from(CauseCode),
    message=WORDS,
    node=st.none() | NAMES,
    rank=st.none() | st.integers(0, 1023),
    exit_code=st.none() | st.integers(-255, 255),
    signal=st.none() | st.sampled_from(["SIGKILL", "SIGSEGV"]),
    last_lines=WORDS,
)

SIZES = st.integers(0, 2**53)
STEP = st.integers(0, 10**10)
MERITS = st.builds(
    PlacementScore,
    st.lists(st.builds(CrossDomainBytes, NAMES, SIZES, SIZES), max_size=3).map(tuple),
    st.none() | st.builds(PredictedStep, st.lists(NAMES, max_size=2).map(tuple), *[STEP] * 5),
    st.integers(0, 9),
    st.booleans(),
)


@st.composite
def roles(draw: st.DrawFn, pods: int) -> tuple[EntryRole, ...]:
    """Any roles of so many pods, or none."""
    found: list[EntryRole] = []
    while pods and (found or draw(st.booleans())):
        replicas = draw(st.integers(1, pods))
        pods -= replicas
        amounts = draw(st.dictionaries(NAMES, st.integers(0, 2**52), max_size=3))
        found.append(EntryRole(draw(NAMES), replicas, amounts))
    return tuple(found)


@st.composite
def entries(draw: st.DrawFn, uid: str) -> Entry:
    """An attempt of the job with this UID."""
    cause = draw(st.none() | CAUSES)
    nodes = draw(st.lists(NAMES, min_size=1, max_size=4))
    if cause is not None:
        lost = draw(st.sets(st.sampled_from(nodes)))
        cause = replace(cause, nodes=tuple(sorted(lost)))
    return Entry(
        job_uid=uid,
        namespace=draw(NAMES),
        job_name=draw(NAMES),
        attempt=draw(st.integers(1, 10_000)),
        state=EntryState.COMMITTING if cause is None else EntryState.ABORTING,
        nodes=tuple(nodes),
        roles=draw(roles(len(nodes))),
        cause=cause,
        spans=tuple(draw(st.dictionaries(NAMES, st.integers(0, 2**31), max_size=2)).items()),
        spec_hash=draw(WORDS),
        topology_hash=draw(WORDS),
        score=draw(st.none() | MERITS),
    )


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """Any ledger, one entry a job."""
    uids = draw(st.lists(NAMES, unique=True, max_size=4))
    held = Ledger(draw(st.integers(0, 2**31)), draw(NAMES), draw(NAMES))
    return held.with_entries(draw(entries(uid)) for uid in uids)


@dataclass
class OneObject:
    """An API server with one object, which it replaces under its version only.

    ``lose`` is what becomes of the next write: its "reply", or the whole "request". Before so many
    writes somebody ``touches`` the object.
    """

    held: dict[str, Any] | None = None
    version: int = 0
    lose: str = ""
    touches: int = 0
    written: list[dict[str, Any]] = field(default_factory=list)

    async def get(self, path: str) -> dict[str, Any]:
        if self.held is None:
            raise errors.NotFoundError(404, "NotFound", message=path)
        return copy.deepcopy(self.held)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.held is not None:
            raise errors.AlreadyExistsError(409, "AlreadyExists", message=path)
        return self._keep(body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        lose, self.lose = self.lose, ""
        if self.touches and self.held is not None:
            self.touches -= 1
            self.version += 1
            self.held["metadata"]["resourceVersion"] = str(self.version)
        if lose == "request":
            raise errors.OutcomeUnknown(path)
        if self.held is None:
            raise errors.NotFoundError(404, "NotFound", message=path)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise errors.ConflictError(409, "Conflict", message=path)
        kept = self._keep(body)
        if lose == "reply":
            raise errors.OutcomeUnknown(path)
        return kept

    def _keep(self, body: dict[str, Any]) -> dict[str, Any]:
        LedgerObject.model_validate(body)
        self.version += 1
        self.held = copy.deepcopy(body)
        self.held["metadata"]["resourceVersion"] = str(self.version)
        self.written.append(self.held)
        return copy.deepcopy(self.held)


async def leader(server: OneObject, holder: str) -> LedgerStore:
    leading = LedgerStore(cast(Api, server), holder=holder)
    await leading.take_over()
    return leading


@given(ledgers())
def test_every_ledger_is_a_valid_object_and_reads_back_the_same(ledger: Ledger) -> None:
    server = OneObject()

    async def written() -> None:
        await (await leader(server, "one")).write(ledger)

    asyncio.run(written())
    assert server.held is not None
    assert store.parse(server.held) == ledger


@given(entries("job"))
def test_an_entry_is_stored_in_no_more_than_its_size(entry: Entry) -> None:
    ledger = Ledger(1, "i", "h")
    server = OneObject()

    async def written(ledger: Ledger) -> int:
        server.held = None
        await (await leader(server, "one")).write(ledger)
        assert server.held is not None
        return len(as_stored(server.held["spec"]["entries"]))

    assert asyncio.run(written(ledger.with_entries([entry]))) - len("[]") <= entry.size


def as_stored(value: Any) -> bytes:
    """JSON as the API server writes it: what HTML gives a meaning to is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


async def test_leader_raises_epoch_and_keeps_entries_and_incarnation() -> None:
    """A take-over changes only the epoch and the holder."""
    server = OneObject()
    one = await leader(server, "one")
    assert (one.ledger.epoch, one.ledger.holder) == (1, "one")
    await one.write(one.ledger.with_entries([attempts.entry()]))
    two = await leader(server, "two")
    assert (two.ledger.epoch, two.ledger.holder) == (2, "two")
    assert two.ledger.entries == (attempts.entry(),)
    assert two.ledger.incarnation == one.ledger.incarnation != ""


async def test_a_leader_that_was_replaced_can_write_nothing_more() -> None:
    server = OneObject()
    one = await leader(server, "one")
    two = await leader(server, "two")
    with pytest.raises(DeposedError):
        await one.write(one.ledger.with_entries([attempts.entry()]))
    assert server.held is not None
    assert store.parse(server.held) == two.ledger


async def test_repeated_foreign_touches_do_not_block_writes() -> None:
    """A conflict without a change of the ledger is retried at once."""
    server = OneObject()
    one = await leader(server, "one")
    planned = one.ledger.with_entries([attempts.entry()])
    server.touches = 3
    await one.write(planned)
    assert one.ledger == planned
    server.touches = 1_000
    with pytest.raises(errors.OutcomeUnknown):
        await one.write(one.ledger.with_entries([]))
    assert one.ledger == planned


async def test_write_without_a_response_is_resolved_by_reading() -> None:
    server = OneObject()
    one = await leader(server, "one")
    server.lose = "reply"
    await one.write(one.ledger.with_entries([attempts.entry()]))
    await one.write(one.ledger.with_entries([]))
    assert server.held is not None
    assert store.parse(server.held).entries == ()


async def gave_up(server: OneObject) -> tuple[LedgerStore, Ledger]:
    """A leader whose write did not arrive, and what it wrote."""
    one = await leader(server, "one")
    server.lose = "request"
    planned = one.ledger.with_entries([attempts.entry()])
    with pytest.raises(errors.OutcomeUnknown):
        await one.write(planned)
    return one, planned


async def test_lost_write_is_reported_and_can_be_repeated() -> None:
    """The write did not arrive: it raises, and the next one succeeds."""
    one, planned = await gave_up(OneObject())
    assert one.ledger.entries == ()
    await one.write(planned)
    assert one.ledger == planned


async def test_late_write_is_found_when_ledger_is_confirmed() -> None:
    """A write that timed out arrives later; `confirm` reads it."""
    server = OneObject()
    one, planned = await gave_up(server)
    await one.confirm()
    await server.replace(store.PATH, one._manifest(planned))
    with pytest.raises(errors.OutcomeUnknown):
        await one.confirm()
    assert one.ledger == planned
    await one.write(one.ledger.with_entries([]))


async def test_ledger_of_a_restored_backup_deposes_its_leader() -> None:
    """It has the same incarnation, epoch and holder as the leader that goes on."""
    server = OneObject()
    one = await leader(server, "one")
    backup, version = copy.deepcopy(server.held), server.version
    await one.write(one.ledger.with_entries([attempts.entry()]))
    server.held, server.version = backup, version
    with pytest.raises(DeposedError, match="went back from version"):
        await one.confirm()


async def test_ledger_of_another_incarnation_deposes_its_leader() -> None:
    """It was deleted and made again, with the same holder and in the same epoch."""
    server = OneObject()
    one = await leader(server, "one")
    server.held = None
    again = await leader(server, "one")
    assert (again.ledger.holder, again.ledger.epoch) == (one.ledger.holder, one.ledger.epoch)
    with pytest.raises(DeposedError):
        await one.confirm()
    with pytest.raises(DeposedError):
        await one.write(one.ledger.with_entries([attempts.entry()]))
    assert server.held is not None
    assert store.parse(server.held) == again.ledger


async def test_write_to_a_deleted_ledger_deposes_its_leader() -> None:
    server = OneObject()
    one = await leader(server, "one")
    server.held = None
    with pytest.raises(DeposedError, match="deleted"):
        await one.write(one.ledger.with_entries([attempts.entry()]))
    assert server.held is None


async def test_leader_without_writes_finds_its_ledger_deleted() -> None:
    server = OneObject()
    one = await leader(server, "one")
    server.held = None
    with pytest.raises(DeposedError, match="deleted"):
        await one.confirm()


async def test_another_leader_found_after_a_lost_reply_is_no_success() -> None:
    server = OneObject()
    one = await leader(server, "one")
    await leader(server, "two")
    server.lose = "request"
    with pytest.raises(DeposedError):
        await one.write(one.ledger.with_entries([attempts.entry()]))


async def test_a_leader_that_was_not_replaced_finds_its_own_ledger() -> None:
    server = OneObject()
    one = await leader(server, "one")
    await one.confirm()
    await leader(server, "two")
    with pytest.raises(DeposedError):
        await one.confirm()
