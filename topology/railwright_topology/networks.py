"""A wiring with what is derived from it: tiers, domains, rails and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from railwright_topology import aligned, faults, layers
from railwright_topology.aligned import RailAssignment
from railwright_topology.folding import fold
from railwright_topology.layers import Layers
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.wiring import Wiring


@dataclass(frozen=True, slots=True)
class Network:
    """The cables of one source, and what is derived from them; ``assignments`` has the hosts on
    rails."""

    wiring: Wiring
    layers: Layers
    source_report: SourceReport
    faults: tuple[str, ...]
    assignments: Mapping[str, RailAssignment]

    @property
    def hosts(self) -> int:
        """How many hosts have a cable."""
        return len({uplink.host for uplink in self.wiring.uplinks})

    @property
    def rails(self) -> int:
        """How many rails there are; 0 where adapters of a host share their switches."""
        return len({*self.layers.rails.values()})

    def oversubscription(self) -> dict[int, float]:
        """By tier: the bytes a second that can come from below its switches, over those that can
        leave them upwards."""
        down, up = self._capacities()
        return {tier: down[tier] / up[tier] for tier in sorted(up) if up[tier]}

    def narrowing(self) -> dict[int, float]:
        """By tier: the bytes a second that hosts can send, over those that can leave the tier."""
        down, up = self._capacities()
        return {tier: down[1] / up[tier] for tier in sorted(up) if up[tier]}

    def _capacities(self) -> tuple[Counter[int], Counter[int]]:
        """By tier: bytes a second that its switches take from below, and upwards."""
        tiers = self.layers.tiers
        down, up = Counter({1: self.source_report.capacity}), Counter[int]()
        for low, high, bytes_per_s in self.layers.upward(self.wiring.trunks):
            up[tiers[low]] += bytes_per_s
            down[tiers[high]] += bytes_per_s
        return down, up

    def reducing_domains(self) -> tuple[frozenset[str], ...]:
        """By tier, the nearest first: the domains in which every switch has in-network reduction
        (SHARP), by their names in the source report."""
        reducing = {switch.id for switch in self.wiring.switches if switch.reduces}
        found: list[frozenset[str]] = []
        reduced: set[str] = set()
        for tier, names in zip(self.layers.domains, self.source_report.tiers, strict=True):
            its = [each for each in tier if each.switches and reducing.issuperset(each.switches)]
            if found:
                its = [each for each in its if reduced.issuperset(each.hosts)]
            reduced = {host for each in its for host in each.hosts}
            found.append(frozenset(names[host] for host in reduced))
        return tuple(found)

    def speeds(self) -> dict[int, int]:
        """Bytes a second of one adapter's cable, and how many adapters have it."""
        counts = Counter(uplink.bytes_per_s for uplink in self.wiring.uplinks)
        return dict(sorted(counts.items(), reverse=True))


def of(wiring: Wiring) -> Network:
    """Derive a network. Pure; independent of the order of the wiring's parts."""
    found = layers.of(wiring)
    source_report, assignments = _source_report(wiring, found), aligned.by_cables(wiring, found)
    return Network(wiring, found, source_report, faults.of(wiring, found), assignments)


def _source_report(wiring: Wiring, found: Layers) -> SourceReport:
    """Name each domain by its switches of its tier, without any by the domain inside; domains that
    share switches get the name of their first host too."""
    names = {switch.id: switch.name for switch in wiring.switches}
    tiers: list[dict[str, str]] = []
    for tier in found.domains:
        called = [fold(names[switch] for switch in domain.switches) for domain in tier]
        shared = Counter(called)
        domains: dict[str, str] = {}
        for domain, name in zip(tier, called, strict=True):
            if not name:
                name = tiers[-1][domain.hosts[0]]
            elif shared[name] > 1:
                name = f"{name} of {domain.hosts[0]}"
            domains.update(dict.fromkeys(domain.hosts, name))
        tiers.append(domains)
    return SourceReport(
        wiring.source,
        Provenance.SEEN,
        tuple(tiers),
        strange=wiring.strange,
        capacity=sum(uplink.bytes_per_s for uplink in wiring.uplinks),
        leaving=tuple(_leaving(wiring, found, tiers)),
    )


def _leaving(
    wiring: Wiring, found: Layers, tiers: Iterable[Mapping[str, str]]
) -> Iterator[dict[str, float]]:
    """Of each tier the domains with cables that lead out of it."""
    sent, upwards = Counter[str](), Counter[str]()
    for uplink in wiring.uplinks:
        sent[uplink.host] += uplink.bytes_per_s
    for low, _, bytes_per_s in found.upward(wiring.trunks):
        upwards[low] += bytes_per_s
    for domains, called in zip(found.domains, tiers, strict=True):
        capacities: dict[str, float] = {}
        for domain in domains:
            up = sum(upwards[switch] for switch in domain.switches)
            down = sum(sent[host] for host in domain.hosts)
            if up and down:
                capacities[called[domain.hosts[0]]] = up * len(domain.hosts) / down
        yield capacities
