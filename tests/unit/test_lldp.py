"""lldpctl's output, read. The text here is written for these tests in the tool's format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from railwright_topology.sources import lldp, strict_json
from railwright_topology.wiring import Switch, Uplink, Wiring, WiringError


def neighbour(
    interface: str = "ens1f0",
    chassis: str = "B8:59:9F:00:00:01",
    name: str = "leaf-1",
    *,
    kind: str = "mac",
    roles: dict[str, bool] | None = None,
    via: str = "LLDP",
    medium: str = "",
) -> dict[str, Any]:
    can = {"Bridge": True, "Router": True, "Wlan": False} if roles is None else roles
    port: dict[str, Any] = {"id": [{"type": "ifname", "value": "swp1"}], "ttl": [{"value": "120"}]}
    if medium:
        port["auto-negotiation"] = [{"supported": False, "current": [{"value": medium}]}]
    return {
        "name": interface,
        "via": via,
        "rid": "1",
        "age": "0 day, 01:02:03",
        "chassis": [
            {
                "id": [{"type": kind, "value": chassis}],
                "name": [{"value": name}],
                "descr": [{"value": "Debian GNU/Linux"}],
                "capability": [{"type": role, "enabled": is_} for role, is_ in can.items()],
            }
        ],
        "port": [port],
    }


def output(*neighbours: dict[str, Any]) -> dict[str, Any]:
    return {"lldp": [{"interface": list(neighbours)}]}


def parse(outputs: dict[str, Any]) -> Wiring:
    return lldp.parse(json.dumps(outputs, indent=2))


LEAF_1 = "mac b8:59:9f:00:00:01"
LEAF_2 = "mac b8:59:9f:00:00:02"
SECOND = ("b8:59:9f:00:00:02", "leaf-2")


def test_hosts_are_merged_into_one_wiring() -> None:
    found = parse(
        {
            "node-10": output(neighbour("ens2", medium="100GbaseLR4 - 100GBASE-R PCS/PMA")),
            "node-2": output(
                neighbour("ens10", *SECOND, medium="10GigBaseCX4 - X copper over 8 pair"),
                neighbour("ens9", medium="1000BaseTFD - UTP, full duplex mode"),
                neighbour("ens11", medium="unknown"),
            ),
            "node-3": {"lldp": [{}]},
        }
    )
    assert found.switches == (Switch(LEAF_1, "leaf-1"), Switch(LEAF_2, "leaf-2"))
    assert found.uplinks == (
        Uplink("node-2", "ens9", LEAF_1, 125_000_000),
        Uplink("node-2", "ens10", LEAF_2, 1_250_000_000),
        Uplink("node-2", "ens11", LEAF_1, 0),
        Uplink("node-10", "ens2", LEAF_1, 12_500_000_000),
    )
    assert found.strange == ()


FOLDED_CHASSIS = {
    "id": {"type": "mac", "value": "b8:59:9f:00:00:01"},
    "descr": "Debian GNU/Linux",
    "capability": [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": False}],
}
FOLDED = {
    "via": "LLDP",
    "rid": "1",
    "chassis": {"leaf-1": FOLDED_CHASSIS},
    "port": {"id": {"type": "ifname", "value": "swp1"}, "ttl": "120"},
}


@pytest.mark.parametrize(
    "interface",
    [
        {"ens1f0": FOLDED},
        [{"ens1f0": FOLDED}],
        {
            "ens1f0": {
                **FOLDED,
                "chassis": {
                    "leaf-1": {**FOLDED_CHASSIS, "capability": {"type": "Bridge", "enabled": True}}
                },
            }
        },
    ],
)
def test_folded_lldp_output_parses_the_same(interface: object) -> None:
    folded = {"lldp": {"interface": interface}}
    plain = output(neighbour())
    assert parse({"node-1": folded}) == parse({"node-1": plain})


def test_switch_without_name_is_named_by_its_id() -> None:
    folded = {"ens1f0": {**FOLDED, "chassis": FOLDED_CHASSIS}}
    found = parse({"node-1": {"lldp": {"interface": folded}}})
    assert found.switches == (Switch(LEAF_1, LEAF_1),)


@pytest.mark.parametrize(
    "other",
    [
        neighbour("ens1f0", "02:00:00:00:00:07", "bluefield", roles={"Station": True}),
        neighbour("ens1f0", "02:00:00:00:00:07", "vm", roles={"Bridge": True, "Station": True}),
        neighbour("ens1f0", "02:00:00:00:00:07", "ap", roles={"Bridge": True, "Wlan": True}),
        neighbour("ens1f0", "02:00:00:00:00:07", "off", roles={"Bridge": False}),
        neighbour("ens1f0", "02:00:00:00:00:07", "node-2"),
        neighbour("ens1f0", "02:00:00:00:00:07", "node-2.example.com"),
        neighbour("ens1f0", "leaf-1", "leaf-1", kind="local", via="CDPv2"),
        neighbour(),
    ],
)
def test_lldp_neighbour_without_switch_is_ignored(other: dict[str, Any]) -> None:
    found = parse({"node-1": output(other, neighbour()), "node-2": output()})
    assert found.uplinks == (Uplink("node-1", "ens1f0", LEAF_1, 0),)
    assert found.strange == ()


@pytest.mark.parametrize(
    ("seen", "strange"),
    [
        (
            [neighbour(), neighbour("ens1f0", *SECOND)],
            f"sees 2 switches ({LEAF_1}, {LEAF_2}): it is left out",
        ),
        (
            [neighbour(via="CDPv2")],
            "sees 0 switches (none by LLDP, one by CDPv2): it is left out",
        ),
        (
            [neighbour(kind="ifname", chassis="mgmt0")],
            "sees a switch 'leaf-1' that has no id of its own (ifname 'mgmt0'): it is left out",
        ),
        (
            [neighbour(chassis="")],
            "sees a switch 'leaf-1' that has no id of its own (mac ''): it is left out",
        ),
        ([neighbour(roles={})], "sees 'leaf-1', which does not say what it is"),
        ([{"name": "ens1f0", "via": "LLDP"}], "sees '', which does not say what it is"),
    ],
)
def test_unusable_port_is_remarked_and_left_out(seen: list[dict[str, Any]], strange: str) -> None:
    found = parse({"node-1": output(*seen)})
    assert (found.uplinks, found.switches) == ((), ())
    assert found.strange == (f"node-1 ens1f0 {strange}",)


def test_one_id_with_two_names_is_one_switch_unless_chosen() -> None:
    renamed = {"node-1": output(neighbour()), "node-2": output(neighbour(name="old"))}
    found = parse(renamed)
    assert found.switches == (Switch(LEAF_1, "leaf-1"),)
    assert len(found.uplinks) == 2
    assert found.strange == (f"{LEAF_1} is called 'leaf-1' and 'old'",)
    chosen = {
        host: output(neighbour(kind="local", chassis="1", name=name))
        for host, name in (("node-1", "leaf-1"), ("node-2", "leaf-2"))
    }
    found = parse(chosen)
    assert (found.uplinks, found.switches) == ((), ())
    assert found.strange == (
        "local 1 is called 'leaf-1' and 'leaf-2'",
        "local 1 may be two switches: what is plugged into it is left out",
    )


@pytest.mark.parametrize(
    ("stated", "rule"),
    [
        ("[]", "the document is an object with lldp in it"),
        ('{"lldp": 3}', "lldp: an object stands here, not '3'"),
        ('{"lldp": {"interface": [3]}}', "lldp.interface: an object stands here"),
        (
            '{"lldp": {"interface": [{"name": "e", "via": 1}]}}',
            "e.via: up to 1024 printable characters stand here",
        ),
        ('{"lldp": [{"interface": [{"via": "LLDP"}]}]}', "each neighbour is on an interface"),
    ],
)
def test_impossible_lldp_output_is_left_out(stated: str, rule: str) -> None:
    outputs = {"node-1": output(neighbour()), "node-2": json.loads(stated)}
    found = parse(outputs)
    assert [uplink.host for uplink in found.uplinks] == ["node-1"]
    (remark,) = found.strange
    assert remark.startswith("node-2: ")
    assert rule in remark


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "line 1: no whole JSON document"),
        ('{\n"node-1": {"lldp": [\n{\n"interface" 3}]}}', "line 4: no whole JSON document"),
        ("[]", "the outputs stand in an object, each under its host's name"),
        ('{"node-1": NaN}', "NaN is no number"),
        ('{"node-1": {}, "node-1": {}}', "'node-1' occurs twice in one object"),
        ('{"node-1": ' + "[" * 200_000, "values lie too deep in each other"),
        ('{"node-1": ' + "1" * 5000 + "}", "the document is an object with lldp in it"),
        (" " * (strict_json.LENGTH_MAX + 1), f"{strict_json.LENGTH_MAX} are read at most"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_its_line(text: str, rule: str) -> None:
    with pytest.raises(WiringError) as refused:
        lldp.parse(text)
    assert rule in str(refused.value)


@pytest.mark.parametrize("role", ["Bridge", "Router", "CVLAN", "SVLAN"])
def test_each_role_of_a_switch_makes_one(role: str) -> None:
    found = parse({"node-1": output(neighbour(roles={role: True, "TPMR": False}))})
    assert found.switches == (Switch(LEAF_1, "leaf-1"),)
    assert not parse({"node-1": output(neighbour(roles={role: False, "TPMR": True}))}).switches
