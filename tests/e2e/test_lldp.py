"""The real lldpd in namespaces: what hosts see of their switches is what was plugged."""

from __future__ import annotations

import json

from fixtures import lldp
from railwright_testbed import requirements, waiting
from railwright_topology import fabric
from railwright_topology.networks import Network
from railwright_topology.sources import formats
from railwright_topology.sources.formats import File

GROUPS = (("node-0", "node-1", "node-2"), ("node-3", "node-4", "node-5"))
CABLES = [
    (f"{host} ens{rail}", f"tor-{group}-{rail}")
    for group, hosts in enumerate(GROUPS)
    for host in hosts
    for rail in range(3)
]
WRONG = ("node-4 ens1", "tor-0-1")


def test_same_switches_form_a_domain_and_wrong_port_is_named() -> None:
    requirements.install(requirements.SIMULATED_NETWORKS)
    cables = [WRONG if one == WRONG[0] else (one, other) for one, other in CABLES]
    hosts = [host for group in GROUPS for host in group]
    with lldp.plugged(cables) as plugged:
        for host in hosts:
            waiting.until(
                lambda host=host: plugged.interfaces(host) == {"ens0", "ens1", "ens2"},  # type: ignore[misc]
                f"{host} sees three switches",
                deadline_s=lldp.DEADLINE_S,
            )
        outputs = {host: plugged.reported(host) for host in hosts}
    (network,) = formats.read(File("", "lldp.json", json.dumps(outputs)))
    assert isinstance(network, Network)
    names = {switch.id: switch.name for switch in network.wiring.switches}
    found = {(f"{up.host} {up.nic}", names[up.switch]) for up in network.wiring.uplinks}
    assert found == {*cables}
    together: dict[tuple[str, ...], set[str]] = {}
    for host, place in fabric.of(hosts, [network]).places.items():
        together.setdefault(place, set()).add(host)
    assert sorted(map(sorted, together.values())) == [list(group) for group in GROUPS]
    assert network.faults == (
        "node-4 ens1 is plugged into tor-0-1, and those of the hosts beside it into tor-1-1",
    )
