"""The Ledger object: read once by a new leader, then written by compare-and-swap alone.

A field of a later version stays in its entry as long as the entry is in the ledger.

A conflict means that another leader raised the epoch: this process no longer leads, even with a
valid Lease, and the caller must stop. An unknown outcome is resolved by reading.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from railwright_api import ledger as api
from railwright_api import names, routes, schema
from railwright_kube import bodies, errors
from railwright_kube.client import Api
from railwright_operator.watch import causes
from railwright_operator.write import placement_score
from railwright_scheduler.attempt import node_list
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryRole, EntryState, Ledger
from railwright_scheduler.model.snapshot import Purpose

logger = logging.getLogger(__name__)

Fields = Mapping[str, Any]

NAME = "default"
PATH = routes.one(names.LEDGERS, NAME)
TOUCHES_MAX = 10

_LEDGER_FIELDS = schema.field_names(api.LedgerSpec)
_ENTRY_FIELDS = schema.field_names(api.Entry)


class DeposedError(Exception):
    """Another leader wrote the ledger, or it was restored from a backup: this process must not
    write any more."""


class LedgerStore:
    """The ledger as last written by this leader, and the version to write against."""

    def __init__(self, api: Api, *, holder: str) -> None:
        self._api = api
        self._holder = holder
        self._version = ""
        self._found: Fields = {}
        self._found_entries: dict[AttemptKey, Fields] = {}
        self.ledger = Ledger(epoch=0, incarnation="", holder="")

    async def take_over(self) -> Ledger:
        """Raise the epoch before anything else, so that the writes of leaders before fail."""
        try:
            found = await self._api.get(PATH)
        except errors.NotFoundError:
            found = await self._make()
        self._adopt(found)
        await self.write(self.ledger.taken_over(self._holder))
        logger.info("ledger taken over", extra={"epoch": self.ledger.epoch, "holder": self._holder})
        return self.ledger

    async def write(self, ledger: Ledger) -> None:
        """Write the ledger over the held version. Raises DeposedError, or RequestFailed if it was
        not written.

        A write without a response may still land later, until the version changes. A change of a
        label or an annotation changes the version, not the ledger: then the write is repeated at
        once, or such changes could prevent all writes.
        """
        for _ in range(TOUCHES_MAX):
            before = self.ledger
            try:
                self._adopt(await self._api.replace(PATH, self._manifest(ledger)))
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

        Every pod observed before is then in the lists of every later leader, which raises the epoch
        before it lists.
        """
        if not await self._is_there(self.ledger):
            raise errors.OutcomeUnknown(
                "the ledger differs from the held one; the next cycle plans again"
            )

    async def _is_there(self, written: Ledger) -> bool:
        """Read the ledger; return whether it is this one. Raises DeposedError if it is another
        leader's, or was deleted."""
        held = self.ledger
        try:
            found = await self._api.get(PATH)
        except errors.NotFoundError as error:
            raise DeposedError("the ledger is gone: it was deleted") from error
        there = parse(found)
        ours = (held.incarnation, held.holder, held.epoch)
        if there != written and (there.incarnation, there.holder, there.epoch) != ours:
            raise DeposedError(f"{there.holder} wrote the ledger in epoch {there.epoch}")
        self._adopt(found)
        return there == written

    async def _make(self) -> Mapping[str, Any]:
        first = Ledger(epoch=0, incarnation=uuid.uuid4().hex, holder=self._holder)
        try:
            made: Mapping[str, Any] = await self._api.create(
                routes.kind(names.LEDGERS), self._manifest(first)
            )
        except errors.AlreadyExistsError:
            made = await self._api.get(PATH)
        return made

    def _adopt(self, found: Mapping[str, Any]) -> None:
        version = found["metadata"]["resourceVersion"]
        if self._version and int(version) < int(self._version):
            raise DeposedError(f"the ledger went back from version {self._version} to {version}")
        self._version = version
        self.ledger = parse(found)
        self._found = found["spec"]
        keys = (entry.key for entry in self.ledger.entries)
        self._found_entries = dict(zip(keys, found["spec"].get("entries", ()), strict=True))

    def _manifest(self, ledger: Ledger) -> dict[str, Any]:
        metadata = {"name": NAME} | ({"resourceVersion": self._version} if self._version else {})
        held = {entry.key: entry for entry in self.ledger.entries}
        spec = _later(self._found, _LEDGER_FIELDS) | {
            "epoch": ledger.epoch,
            "incarnation": ledger.incarnation,
            "holder": ledger.holder,
            "entries": [self._entry_fields(entry, held) for entry in ledger.entries],
        }
        return bodies.manifest(names.API_VERSION, "Ledger", metadata, spec)

    def _entry_fields(self, entry: Entry, held: Mapping[AttemptKey, Entry]) -> Fields:
        """The entry as it was read if it is unchanged; else as this version writes it."""
        found = self._found_entries.get(entry.key, {})
        if held.get(entry.key) == entry and found["state"] == entry.state.value:
            return found
        return {**_later(found, _ENTRY_FIELDS), **_entry_fields(entry)}


def parse(found: Mapping[str, Any]) -> Ledger:
    """The ledger as a value. Raises KeyError or ValueError for an invalid object."""
    spec = found["spec"]
    return Ledger(
        epoch=spec["epoch"],
        incarnation=spec["incarnation"],
        holder=spec["holder"],
        entries=tuple(_entry(entry) for entry in spec.get("entries", [])),
    )


def _entry(found: Mapping[str, Any]) -> Entry:
    nodes = node_list.unfold(found["nodes"])
    cause = _cause(found["cause"], nodes) if "cause" in found else None
    state, purpose = found["state"], found.get("purpose", Purpose.TRAINING.value)
    if state not in list(EntryState) or purpose not in list(Purpose):
        # Revoked: this version does not implement its rules.
        message = f"the ledger has the attempt as {state} for {purpose}, of a later version"
        purpose = purpose if purpose in list(Purpose) else Purpose.TRAINING
        cause, state = cause or Cause(CauseCode.STATE_UNKNOWN, message), EntryState.ABORTING
    return Entry(
        job_uid=found["jobUID"],
        namespace=found["namespace"],
        job_name=found["jobName"],
        attempt=found["attempt"],
        state=EntryState(state),
        nodes=nodes,
        roles=tuple(
            EntryRole(role["name"], role["replicas"], dict(role.get("perPod", {})))
            for role in found.get("roles", ())
        ),
        cause=cause,
        spans=tuple((span["level"], span["domains"]) for span in found.get("spans", ())),
        spec_hash=found.get("specHash", ""),
        topology_hash=found.get("topologyHash", ""),
        score=placement_score.parse(found["mapping"]) if "mapping" in found else None,
        purpose=Purpose(purpose),
    )


def _cause(found: Mapping[str, Any], nodes: Sequence[str]) -> Cause:
    lost = {nodes[rank] for rank in found.get("lostNodeRanks", ())}
    return replace(causes.parse(found), nodes=tuple(sorted(lost)))


def _later(found: Fields, fields: Collection[str]) -> dict[str, Any]:
    """The fields that this version does not have."""
    return {name: value for name, value in found.items() if name not in fields}


def _entry_fields(entry: Entry) -> dict[str, Any]:
    """Render an entry; optional fields without a value are left out."""
    fields: dict[str, Any] = {
        "jobUID": entry.job_uid,
        "namespace": entry.namespace,
        "jobName": entry.job_name,
        "attempt": entry.attempt,
        "state": entry.state.value,
        "nodes": list(node_list.fold(entry.nodes)),
    }
    optional = {
        "roles": [
            {"name": role.name, "replicas": role.replicas, "perPod": dict(role.per_pod)}
            for role in entry.roles
        ],
        "spans": [{"level": level, "domains": count} for level, count in entry.spans],
        "specHash": entry.spec_hash,
        "topologyHash": entry.topology_hash,
        "purpose": entry.purpose.value if entry.purpose is not Purpose.TRAINING else "",
    }
    fields |= {name: value for name, value in optional.items() if value}
    if entry.score is not None:
        fields["mapping"] = placement_score.render(entry.score)
    if entry.cause is not None:
        lost = set(entry.cause.nodes)
        ranks = [rank for rank, node in enumerate(entry.nodes) if node in lost]
        fields["cause"] = causes.render(replace(entry.cause, nodes=()))
        fields["cause"] |= {"lostNodeRanks": ranks} if ranks else {}
    return fields
