"""What ``doctor`` checks by time: the clocks of machines, and Leases, whose times are by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from railwright_cli.amounts import count
from railwright_cli.installation import LEADERS, CheckedSite, Finding, LeaseView
from railwright_cli.tables import duration

LEASES = "/apis/coordination.k8s.io/v1/namespaces"
NODES_SHOWN = 3
CLOCK_SKEW_MAX = timedelta(seconds=5)
NODE_SILENCE_MAX = timedelta(seconds=60)
"""Kubelets renew their Leases every ten seconds."""

RENEWAL_S = 5.0
"""Within this time a leader renews its Lease, which it does every two seconds."""


def clock(site: CheckedSite) -> Iterator[Finding]:
    """Ages are computed with the clock of this machine."""
    skew = abs(datetime.now(UTC) - site.now)
    if skew > CLOCK_SKEW_MAX:
        text = f"the API server's clock differs from this machine's by {_since(skew)}"
        yield Finding("warning", text, "ages that commands print are wrong: run NTP on both")
    else:
        yield Finding("ok", "this machine's clock agrees with the API server's")


def node_clocks(site: CheckedSite) -> Iterator[Finding]:
    """A kubelet writes the time of its machine when it renews its Lease."""
    leases = site.server.items(f"{LEASES}/kube-node-lease/leases", LeaseView)
    times = {each.metadata.name: each.spec.renew_time or site.now for each in leases}
    oldest, newest = site.now - NODE_SILENCE_MAX, site.server.time() + CLOCK_SKEW_MAX
    ahead = sorted(name for name, time in times.items() if time > newest)
    behind = sorted(name for name, time in times.items() if time < oldest)
    for nodes, what in ((ahead, "ahead"), (behind, "behind, or the nodes are down")):
        if nodes:
            shown = ", ".join(nodes[:NODES_SHOWN]) + ", ..." * (len(nodes) > NODES_SHOWN)
            text = f"the clocks of {count(len(nodes), 'node')} are {what}: {shown}"
            yield Finding("warning", text, "kubectl get nodes, and run NTP on all machines")
    if not ahead and not behind:
        yield Finding("ok", f"the clocks of {count(len(times), 'node')} agree")


def leaders(site: CheckedSite) -> Iterator[Finding]:
    """A leader writes the time of its machine when it renews its Lease. Where that differs from the
    API server's, the Lease is read again: a change of it needs no clock."""
    first = found = _renewals(site, LEADERS)
    if doubtful := [name for name, its in first.items() if not its.is_plausible]:
        site.sleep(RENEWAL_S)
        found = first | _renewals(site, doubtful)
    for name in LEADERS:
        advice = f"kubectl logs -n {site.system} deploy/{name}"
        its = found.get(name)
        if its is None:
            yield Finding("failed", f"{name} has never led", advice)
        elif name not in doubtful:
            yield Finding("ok", f"{its.holder} leads")
        elif its.time == first[name].time:
            since = its.describe("ago", "in the future")
            yield Finding("failed", f"nothing leads: {name} renewed its Lease {since}", advice)
        elif its.is_plausible:
            yield Finding("ok", f"{its.holder} leads")
        else:
            text = f"{its.holder} leads, but its clock is {its.describe('behind', 'ahead')}"
            advice = f"run NTP on its node: kubectl get pods -n {site.system} -o wide"
            yield Finding("warning", text, advice)


@dataclass(frozen=True, slots=True)
class _Renewal:
    """The last one of a Lease, and how long ago it was by the API server's clock."""

    holder: str
    time: datetime
    silence: timedelta
    silence_max: timedelta

    @property
    def is_plausible(self) -> bool:
        """Whether the holder leads, if its clock is right."""
        return -CLOCK_SKEW_MAX <= self.silence <= self.silence_max

    def describe(self, past: str, future: str) -> str:
        """How long ago, with the word that fits."""
        return f"{_since(abs(self.silence))} {past if self.silence > timedelta() else future}"


def _renewals(site: CheckedSite, leaders: Iterable[str]) -> dict[str, _Renewal]:
    """Those of the Leases that were ever held."""
    paths = {name: f"{LEASES}/{site.system}/leases/{name}" for name in leaders}
    leases = {name: site.server.find(path, LeaseView) for name, path in paths.items()}
    held = {name: each.spec for name, each in leases.items() if each is not None}
    now = site.server.time()
    return {
        name: _Renewal(
            its.holder_identity,
            its.renew_time,
            now - its.renew_time,
            timedelta(seconds=its.lease_duration_seconds),
        )
        for name, its in held.items()
        if its.renew_time is not None
    }


def _since(passed: timedelta) -> str:
    return duration(passed.total_seconds())
