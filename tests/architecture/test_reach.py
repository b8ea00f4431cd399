"""Whom the operator speaks to: the API server, and nobody that a user names."""

from __future__ import annotations

import re
from typing import Any

import yaml

from architecture import tree

CALLS_OUT = re.compile(
    r"ClientSession\(|urlopen|create_connection|open_connection|http\.client|PoolManager|"
    r"import requests|import httpx|import socket\b"
)
DOOR = "operator/railwright_kube/transport.py"
OWN_PROCESSES = "operator/railwright_operator/mapper_process.py"
LISTENS = "operator/railwright_process/metrics_server.py"
AGENT = "topology/railwright_agent"
REFERENCES = re.compile(r"^namespaces?$|Namespace$|^url$|Url$|URL$")


def test_the_operator_opens_connections_in_one_file_alone() -> None:
    found = _calling_out("operator", "scheduler", "topology/railwright_topology")
    assert found == {DOOR, OWN_PROCESSES, LISTENS}, f"only {DOOR} may call out: {sorted(found)}"


def test_the_operators_own_processes_have_no_address() -> None:
    lines = (tree.ROOT / OWN_PROCESSES).read_text(encoding="utf-8").splitlines()
    found = [line.strip() for line in lines if CALLS_OUT.search(line) or "socket." in line]
    pair = "ours, its = socket.socketpair()"
    assert found[:2] == ["import socket", pair]
    assert [line.partition("open_connection(")[2][:10] for line in found[2:]] == ["sock=ours,"]


def test_server_for_metrics_listens_and_connects_to_nobody() -> None:
    text = (tree.ROOT / LISTENS).read_text(encoding="utf-8")
    assert CALLS_OUT.findall(text) == ["import socket"]
    used = {"socket.socket", "socket.fileno", "socket.create_server"}
    assert set(re.findall(r"\bsocket\.[a-z]\w*", text)) == used
    assert not re.search(r"sock_connect|create_connection|\.connect\(", text)


def test_agents_open_connections_in_one_file_each() -> None:
    assert _calling_out(AGENT) == {f"{AGENT}/prober.py", f"{AGENT}/reporting.py"}


def test_no_field_of_ours_names_another_namespace_or_an_address() -> None:
    for file in sorted((tree.ROOT / "crds").glob("*.yaml")):
        crd = yaml.safe_load(file.read_text(encoding="utf-8"))
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        if crd["spec"]["names"]["kind"] == "Ledger":
            continue  # Written by the operator alone.
        named = [name for name in _fields(schema["properties"]["spec"]) if REFERENCES.search(name)]
        assert not named, f"{file.name}: {named}"


def _calling_out(*folders: str) -> set[str]:
    files = [path for folder in folders for path in sorted((tree.ROOT / folder).rglob("*.py"))]
    return {
        tree.name_of(path)
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if CALLS_OUT.search(line)
    }


def _fields(schema: Any) -> list[str]:
    """The names of all fields below a schema."""
    if not isinstance(schema, dict):
        return []
    below = schema.get("properties", {})
    found = list(below)
    for part in (*below.values(), schema.get("items"), schema.get("additionalProperties")):
        found += _fields(part)
    return found
