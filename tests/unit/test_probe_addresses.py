"""Where agents may be sent: to an address that a node may have, and to no other."""

from __future__ import annotations

import pytest

from railwright_agent import handshake
from railwright_agent.handshake import PairKey, ProbeError, ProbeKind, Request
from railwright_topology.probing import addresses, keys

TASK = {"kind": "probeTask", "seconds": 1.0, "port": 7946, "source": "a", "pairKey": "k"}


@pytest.mark.parametrize("host", ["10.0.0.1", "192.168.7.9", "100.64.0.1", "8.8.8.8", "fd00::7"])
def test_address_of_a_node_is_taken(host: str) -> None:
    assert addresses.refusal(host) == ""
    key = PairKey("a", b"k")
    task = Request(ProbeKind.TASK, 1.0, host, 7946, key)
    assert handshake.probe_task(TASK | {"host": host}) == task


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "a loopback address"),
        ("127.254.0.9", "a loopback address"),
        ("::1", "a loopback address"),
        ("::ffff:127.0.0.1", "127.0.0.1 is a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("::ffff:169.254.169.254", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("fe80::1%eth0", "is not an IP address"),
        ("224.0.0.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("0.0.0.0", "the unspecified address"),
        ("::", "the unspecified address"),
        ("255.255.255.255", "a reserved address"),
        ("240.0.0.1", "a reserved address"),
        ("localhost", "is not an IP address"),
        ("metadata.example.com", "is not an IP address"),
        ("0x7f000001", "is not an IP address"),
        ("2130706433", "is not an IP address"),
        ("127.1", "is not an IP address"),
        ("", "is not an IP address"),
    ],
)
def test_other_address_is_refused_by_the_agent(host: str, reason: str) -> None:
    assert reason in addresses.refusal(host)
    with pytest.raises(ProbeError, match="no agent is sent there"):
        handshake.probe_task(TASK | {"host": host})


def test_network_holds_its_addresses() -> None:
    networks = ("10.10.0.7/16", "fd00:1::/32", "no network")
    assert addresses.within("10.10.255.1", networks)
    assert addresses.within("::ffff:10.10.0.1", networks)
    assert addresses.within("fd00:1::5", networks)
    assert not addresses.within("10.11.0.1", networks)
    assert not addresses.within("a node", networks)
    assert not addresses.within("10.10.0.1", ())


def test_key_of_a_pair_is_of_no_other() -> None:
    tokens = {node: keys.agent_token("shared", node) for node in ("a", "b", "c")}
    pairs = {
        (one, other): keys.pair_key(tokens[other], one)
        for one in tokens
        for other in tokens
        if one != other
    }
    assert len({*tokens.values(), *pairs.values()}) == len(tokens) + len(pairs)
    assert all(len(key) == 64 for key in pairs.values())
