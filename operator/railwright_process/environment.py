"""Read the options of a process from its environment."""

from __future__ import annotations

import ipaddress
import os
import urllib.parse
from collections.abc import Mapping


class SettingsError(ValueError):
    """An option that cannot be used: its name, the value seen, what was expected."""


def identity(environment: Mapping[str, str]) -> str:
    """The holder of the Lease: unique to a replica, and by default to each start."""
    by_default = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"
    return environment.get("RAILWRIGHT_IDENTITY") or by_default


def namespace(environment: Mapping[str, str]) -> str:
    """The namespace of the Lease."""
    return environment.get("RAILWRIGHT_NAMESPACE", "railwright-system")


def reached_at(environment: Mapping[str, str], listens: tuple[str, int]) -> str:
    """The host:port at which pods reach this one, which ``listens`` there; empty if its address is
    not stated, or of the other family of addresses. Raises SettingsError."""
    text, (host, port) = environment.get("RAILWRIGHT_POD_IP", ""), listens
    if not text or not port:
        return ""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        raise SettingsError(f"RAILWRIGHT_POD_IP is {text!r}: expected an IP address") from None
    if (ip.version == 6) != (":" in host):
        return ""
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def required(environment: Mapping[str, str], name: str, expected: str) -> str:
    """The value of an option without a default. Raises SettingsError."""
    value = environment.get(name, "")
    if not value:
        raise SettingsError(f"{name} is not set: expected {expected}")
    return value


def url(environment: Mapping[str, str], name: str, meaning: str) -> str:
    """The URL of a server of ours. Raises SettingsError."""
    text = required(environment, name, f"{meaning}, https://HOST:PORT")
    try:
        parts = urllib.parse.urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not text.isascii():
        raise SettingsError(f"{name} is {text!r}: expected {meaning}, https://HOST:PORT")
    return text


def address(environment: Mapping[str, str], name: str, default: str) -> tuple[str, int]:
    """A host and a port to listen on. Raises SettingsError."""
    text = environment.get(name, default)
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{name} is {text!r}: expected host:port, for example {default}")
    return host, int(port)


def everywhere(environment: Mapping[str, str], port: int) -> str:
    """All addresses of this machine or pod, of the family of the pod's own."""
    is_ipv6 = ":" in environment.get("RAILWRIGHT_POD_IP", "")
    return f"[::]:{port}" if is_ipv6 else f"0.0.0.0:{port}"


def of_probes(environment: Mapping[str, str], port: int) -> str:
    """Where the kubelet of a pod and Prometheus reach it; elsewhere only this machine does."""
    is_pod = bool(environment.get("RAILWRIGHT_POD_IP"))
    return everywhere(environment, port) if is_pod else f"127.0.0.1:{port}"
