"""What the site's administrators set: queues, the fabric's levels, priority classes."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from railwright_api import names, schema
from railwright_api.fabric import Probing
from railwright_operator.watch import excerpts
from railwright_operator.watch.excerpts import PriorityClass
from railwright_scheduler.model.decisions import PriorityClassMissing

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLASSES = excerpts.of(PriorityClass)
GONE_REMEMBERED_MAX = 1_000

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PriorityClassRecord:
    """A PriorityClass: a name for a number."""

    uid: str
    name: str
    value: int
    rv: int = field(compare=False)


def priority_class(found: PriorityClass) -> PriorityClassRecord:
    """The record of a PriorityClass."""
    metadata = found.metadata
    version = int(metadata.resource_version)
    return PriorityClassRecord(metadata.uid, metadata.name, found.value, rv=version)


class Newest:
    """Objects of one kind without namespaces, by name: the newest version of each.

    One that is gone stays gone, whatever older version of it comes late.
    """

    def __init__(self) -> None:
        self._held: dict[str, Raw] = {}
        self._gone: collections.OrderedDict[str, None] = collections.OrderedDict()

    def __repr__(self) -> str:
        return f"<Newest {sorted(self._held)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all, sorted."""
        return tuple(sorted(self._held))

    def get(self, name: str) -> Raw | None:
        """The object of this name."""
        return self._held.get(name)

    def absorb(self, raw: Raw) -> None:
        """An object was seen in this version."""
        metadata = raw["metadata"]
        held = self._held.get(metadata["name"])
        if metadata["uid"] in self._gone or (held is not None and _version(held) >= _version(raw)):
            return
        self._held[metadata["name"]] = raw

    def discard(self, raw: Raw) -> None:
        """This object is gone; one made since under its name stays."""
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        if name in self._held and self._held[name]["metadata"]["uid"] == uid:
            del self._held[name]
        self._gone[uid] = None
        while len(self._gone) > GONE_REMEMBERED_MAX:
            self._gone.popitem(last=False)

    def take(self, listed: Collection[Raw], *, version: int) -> None:
        """Take in a whole list of this version: what it does not have is gone."""
        for raw in listed:
            self.absorb(raw)
        uids = {raw["metadata"]["uid"] for raw in listed}
        for raw in list(self._held.values()):
            if raw["metadata"]["uid"] not in uids and _version(raw) <= version:
                self.discard(raw)


class Site:
    """The newest of each, by name."""

    def __init__(self) -> None:
        self._queues = Newest()
        self._fabrics = Newest()
        self._classes: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Site queues={self.queues} levels={self.levels}>"

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all queues, sorted."""
        return self._queues.names

    @property
    def levels(self) -> tuple[str, ...]:
        """The node labels of the site's own choice that name domains, the coarsest first."""
        return tuple((self.fabric or {}).get("spec", {}).get("levels") or ())

    @property
    def agents(self) -> int:
        """How many agents the Fabric's status says were heard."""
        status = (self.fabric or {}).get("status") or {}
        return int((status.get("agents") or {}).get("nodes", 0))

    @property
    def probing(self) -> Probing:
        """Whether nodes are measured; never where there is no Fabric to say so."""
        if self.fabric is None:
            return Probing(mode="Never")
        said = self.fabric.get("spec", {}).get("probing") or {}
        return schema.read(Probing, said)

    @property
    def fabric(self) -> Raw | None:
        """The Fabric as last seen; only the one named ``default`` counts."""
        return self._fabrics.get(names.SINGLETON)

    def queue(self, name: str) -> Raw | None:
        """A queue as last seen."""
        return self._queues.get(name)

    def seen(self, plural: str, raw: Raw, *, gone: bool = False) -> None:
        """A Queue or a Fabric changed."""
        kind = self._of(plural)
        if gone:
            kind.discard(raw)
        else:
            kind.absorb(raw)

    def listed(self, plural: str, raws: Collection[Raw], *, version: int) -> None:
        """All Queues, or all Fabrics, as of a version."""
        self._of(plural).take(raws, version=version)

    def _of(self, plural: str) -> Newest:
        return {names.QUEUES: self._queues, names.FABRICS: self._fabrics}[plural]

    def class_seen(self, old: PriorityClassRecord | None, new: PriorityClassRecord | None) -> None:
        """A PriorityClass changed; None stands for absence."""
        if old is not None:
            self._classes.pop(old.name, None)
        if new is not None:
            self._classes[new.name] = new.value

    def priority(self, name: str | None) -> int:
        """The value of a class; 0 for none, and for one that does not exist."""
        return self._classes.get(name, 0) if name else 0

    def missing_class(self, name: str | None) -> PriorityClassMissing | None:
        """Why a job with this class cannot be queued; None when it can."""
        if not name or name in self._classes:
            return None
        return PriorityClassMissing(name, tuple(sorted(self._classes)))


def _version(raw: Raw) -> int:
    return int(raw["metadata"]["resourceVersion"])
