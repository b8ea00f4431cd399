"""The operator's environment: what is missing or unfit is named with what was expected."""

from __future__ import annotations

import pytest

from railwright_controllers import settings as controllers_settings
from railwright_operator import settings
from railwright_process.environment import SettingsError

LEAST = {
    "RAILWRIGHT_LAUNCHER_IMAGE": "registry.example.com/railwright:1",
    "RAILWRIGHT_HEARTBEAT_URL": "http://railwright.railwright-system:8470",
}


def test_two_variables_are_enough() -> None:
    chosen = settings.from_environment(LEAST)
    assert chosen.launcher_image == LEAST["RAILWRIGHT_LAUNCHER_IMAGE"]
    assert chosen.url == LEAST["RAILWRIGHT_HEARTBEAT_URL"]
    assert chosen.address == ("0.0.0.0", 8470)
    assert chosen.probe_address == ("127.0.0.1", 8471)
    assert chosen.metrics_address == ("127.0.0.1", 8472)
    assert chosen.namespace == "railwright-system"


AGENTS_URL = {"RAILWRIGHT_AGENTS_URL": "https://railwright-controllers.railwright-system:8480"}


def test_controllers_need_one_variable() -> None:
    """Agents reach them from anywhere, probes and metrics only this machine."""
    chosen = controllers_settings.from_environment(AGENTS_URL)
    assert chosen.url == AGENTS_URL["RAILWRIGHT_AGENTS_URL"]
    assert chosen.address == ("0.0.0.0", 8480)
    assert chosen.probe_address == ("127.0.0.1", 8481)
    assert chosen.metrics_address == ("127.0.0.1", 8482)
    assert chosen.namespace == "railwright-system"
    assert chosen.identity != controllers_settings.from_environment(AGENTS_URL).identity


def test_addresses_may_be_of_either_kind() -> None:
    given = LEAST | {
        "RAILWRIGHT_HEARTBEAT_ADDRESS": "10.0.0.7:1",
        "RAILWRIGHT_PROBE_ADDRESS": "[::1]:65535",
        "RAILWRIGHT_METRICS_ADDRESS": "localhost:0",
    }
    chosen = settings.from_environment(given)
    assert chosen.address == ("10.0.0.7", 1)
    assert chosen.probe_address == ("::1", 65535)
    assert chosen.metrics_address == ("localhost", 0)


@pytest.mark.parametrize(("ip", "everywhere"), [("10.0.0.7", "0.0.0.0"), ("fd00::7", "::")])
def test_pod_listens_on_all_addresses_of_its_family(ip: str, everywhere: str) -> None:
    """Launchers, agents, its kubelet and Prometheus reach it there."""
    pod = {"RAILWRIGHT_POD_IP": ip}
    operator = settings.from_environment(LEAST | pod)
    assert operator.address == (everywhere, 8470)
    assert operator.probe_address == (everywhere, 8471)
    assert operator.metrics_address == (everywhere, 8472)
    controllers = controllers_settings.from_environment(AGENTS_URL | pod)
    assert controllers.address == (everywhere, 8480)
    assert controllers.probe_address == (everywhere, 8481)
    assert controllers.metrics_address == (everywhere, 8482)
    shown = f"[{ip}]" if ":" in ip else ip
    assert (operator.reached_at, controllers.reached_at) == (f"{shown}:8470", f"{shown}:8480")


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_missing_is_named(name: str, value: str | None) -> None:
    given = {key: text for key, text in LEAST.items() if key != name}
    if value is not None:
        given[name] = value
    with pytest.raises(SettingsError, match=f"^{name} is not set: expected "):
        settings.from_environment(given)


@pytest.mark.parametrize("value", ["operator:8470", "ftp://x", "https://", "https://x:port", "a"])
def test_url_that_cannot_be_used_is_named(value: str) -> None:
    with pytest.raises(SettingsError, match=r"^RAILWRIGHT_HEARTBEAT_URL is .*https://HOST:PORT"):
        settings.from_environment(LEAST | {"RAILWRIGHT_HEARTBEAT_URL": value})


@pytest.mark.parametrize("value", ["8470", ":8470", "host:", "host:http", "host:65536", "host:-1"])
def test_an_address_that_is_none_is_named_with_its_value(value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings.from_environment(LEAST | {"RAILWRIGHT_PROBE_ADDRESS": value})
    assert str(refused.value) == (
        f"RAILWRIGHT_PROBE_ADDRESS is {value!r}: expected host:port, for example 127.0.0.1:8471"
    )


def test_two_replicas_on_one_machine_have_two_identities() -> None:
    identities = {settings.from_environment(LEAST).identity for _ in range(8)}
    assert len(identities) == 8


def test_replica_name_is_configurable_with_a_default() -> None:
    """RAILWRIGHT_IDENTITY names the replica; the default is unique to the process."""
    named = LEAST | {"RAILWRIGHT_IDENTITY": "railwright-operator-0"}
    assert settings.from_environment(named).identity == "railwright-operator-0"
    first, second = (settings.from_environment(LEAST).identity for _ in range(2))
    assert first != second
