"""The Ledger object: read once by a new leader, then written by compare-and-swap alone.

A write that conflicts means that another leader raised the epoch: this process is no leader any
more, whatever its Lease says, and the caller must stop. An unknown outcome is resolved by reading.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from railwright_api import names
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.watch import causes
from railwright_operator.write import merits
from railwright_scheduler.attempt.ledger import Entry, EntryState, Ledger

logger = logging.getLogger(__name__)

NAME = "default"
PATH = paths.one(names.LEDGERS, NAME)
TOUCHES_MAX = 10


class DeposedError(Exception):
    """Another leader wrote the ledger: this one must write nothing more."""


class LedgerStore:
    """The ledger as last written by this leader, and the version to write against."""

    def __init__(self, api: Api, *, holder: str) -> None:
        self._api = api
        self._holder = holder
        self._version = ""
        self.ledger = Ledger(epoch=0, incarnation="", holder="")

    def __repr__(self) -> str:
        held = self.ledger
        return f"<LedgerStore epoch={held.epoch} entries={len(held.entries)} rv={self._version}>"

    async def take_over(self) -> Ledger:
        """Raise the epoch before anything else, so that the writes of leaders before fail."""
        try:
            found = await self._api.get(PATH)
        except errors.NotFoundError:
            found = await self._make()
        self._hold(found)
        await self.write(self.ledger.taken_over(self._holder))
        logger.info("took over", extra={"epoch": self.ledger.epoch, "holder": self._holder})
        return self.ledger

    async def write(self, ledger: Ledger) -> None:
        """Write it over the version held. Raises DeposedError, or RequestFailed: not written.

        What no answer came to may still arrive after that, as long as the version stands. Whoever
        only touches the object (a label, an annotation) changes its version, not the ledger: over
        that it is written again at once, or they could keep us from ever writing.
        """
        for _ in range(TOUCHES_MAX):
            before = self.ledger
            try:
                self._hold(await self._api.replace(PATH, _manifest(ledger, self._version)))
            except errors.NotFoundError as error:
                raise DeposedError("the ledger was deleted") from error
            except errors.ConflictError:
                if not await self._is_there(ledger) and self.ledger == before:
                    continue
            except errors.OutcomeUnknown:
                await self._is_there(ledger)
            break
        if self.ledger != ledger:
            raise errors.OutcomeUnknown("the ledger was not written; it is planned again")

    async def confirm(self) -> None:
        """Find this leader's own write in the store. Raises DeposedError, or RequestFailed.

        A pod that was seen before is then known to every later leader: it was there before any of
        them could raise the epoch, and asked for its lists.
        """
        if not await self._is_there(self.ledger):
            raise errors.OutcomeUnknown("the ledger is another than was held; it is planned again")

    async def _is_there(self, wanted: Ledger) -> bool:
        """Hold what is there, and say if it is this one. Raises DeposedError if it is another's."""
        held = self.ledger
        found = await self._api.get(PATH)
        there = parse(found)
        ours = (held.incarnation, held.holder, held.epoch)
        if there != wanted and (there.incarnation, there.holder, there.epoch) != ours:
            raise DeposedError(f"{there.holder} wrote the ledger in epoch {there.epoch}")
        self._hold(found)
        return there == wanted

    async def _make(self) -> Mapping[str, Any]:
        first = Ledger(epoch=0, incarnation=uuid.uuid4().hex, holder=self._holder)
        try:
            made: Mapping[str, Any] = await self._api.create(
                paths.kind(names.LEDGERS), _manifest(first, "")
            )
        except errors.AlreadyExistsError:
            made = await self._api.get(PATH)
        return made

    def _hold(self, found: Mapping[str, Any]) -> None:
        self._version = found["metadata"]["resourceVersion"]
        self.ledger = parse(found)


def parse(found: Mapping[str, Any]) -> Ledger:
    """The ledger as a value; KeyError or ValueError when the object was tampered with."""
    spec = found["spec"]
    return Ledger(
        epoch=spec["epoch"],
        incarnation=spec["incarnation"],
        holder=spec["holder"],
        entries=tuple(_entry(entry) for entry in spec.get("entries", [])),
    )


def _entry(found: Mapping[str, Any]) -> Entry:
    cause = found.get("cause")
    return Entry(
        job_uid=found["jobUID"],
        namespace=found["namespace"],
        job_name=found["jobName"],
        attempt=found["attempt"],
        state=EntryState(found["state"]),
        nodes=tuple(found["nodes"]),
        per_node=dict(found["perNode"]),
        cause=None if cause is None else causes.parse(cause),
        spans=tuple((span["level"], span["domains"]) for span in found.get("spans", ())),
        shape=found.get("shape", ""),
        known=found.get("known", ""),
        merits=merits.parse(found["mapping"]) if "mapping" in found else None,
    )


def _manifest(ledger: Ledger, version: str) -> dict[str, Any]:
    metadata = {"name": NAME} | ({"resourceVersion": version} if version else {})
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "Ledger",
        "metadata": metadata,
        "spec": {
            "epoch": ledger.epoch,
            "incarnation": ledger.incarnation,
            "holder": ledger.holder,
            "entries": [_entry_fields(entry) for entry in ledger.entries],
        },
    }


def _entry_fields(entry: Entry) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "jobUID": entry.job_uid,
        "namespace": entry.namespace,
        "jobName": entry.job_name,
        "attempt": entry.attempt,
        "state": entry.state.value,
        "nodes": list(entry.nodes),
        "perNode": dict(entry.per_node),
        "spans": [{"level": level, "domains": count} for level, count in entry.spans],
        "shape": entry.shape,
        "known": entry.known,
    }
    if entry.merits is not None:
        fields["mapping"] = merits.render(entry.merits)
    if entry.cause is not None:
        fields["cause"] = causes.render(entry.cause)
    return fields
