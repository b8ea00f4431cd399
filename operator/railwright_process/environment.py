"""Read the options of a process from its environment."""

from __future__ import annotations

import ipaddress
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


class SettingsError(ValueError):
    """An option that cannot be used: its name, the value seen, what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The options of a replica.

    ``url`` is where pods reach its server: a Service in front of the replicas, or its own address.
    With an https URL the server decrypts messages itself. ``address``, ``probe_address`` and
    ``metrics_address`` are (host, port) to listen on. ``reached_at`` is the host:port at which pods
    reach this replica; empty if it is not known.

    ``namespace`` holds the Lease, and ``identity`` is its holder: unique to a replica, such as the
    name of its pod. A leader that restarts with the same identity need not wait until its own
    Lease expires. By default every start has a new identity.
    """

    url: str
    address: tuple[str, int]
    probe_address: tuple[str, int]
    metrics_address: tuple[str, int]
    namespace: str
    identity: str
    reached_at: str = ""

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str],
        *,
        url: str,
        meaning: str,
        address: str,
        port: int,
        **own: Any,
    ) -> Self:
        """The options, with others of its ``own``. ``url`` and ``address`` name variables; ``port``
        is the one to listen on by default; the next ones are those of probes and of metrics. Raises
        SettingsError with the variable that is missing or invalid."""
        everywhere = "[::]" if ":" in environment.get("RAILWRIGHT_POD_IP", "") else "0.0.0.0"  # noqa: S104
        # The kubelet of a pod and Prometheus reach it; elsewhere only this machine does.
        probed = everywhere if environment.get("RAILWRIGHT_POD_IP") else "127.0.0.1"
        listens = _address(environment, address, f"{everywhere}:{port}")
        anew = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"
        return cls(
            url=_url(environment, url, meaning),
            address=listens,
            probe_address=_address(environment, "RAILWRIGHT_PROBE_ADDRESS", f"{probed}:{port + 1}"),
            metrics_address=_address(
                environment, "RAILWRIGHT_METRICS_ADDRESS", f"{probed}:{port + 2}"
            ),
            namespace=environment.get("RAILWRIGHT_NAMESPACE", "railwright-system"),
            identity=environment.get("RAILWRIGHT_IDENTITY") or anew,
            reached_at=reached_at(environment, listens),
            **own,
        )


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


def _url(environment: Mapping[str, str], name: str, meaning: str) -> str:
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


def _address(environment: Mapping[str, str], name: str, default: str) -> tuple[str, int]:
    """A host and a port to listen on. Raises SettingsError."""
    text = environment.get(name, default)
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{name} is {text!r}: expected host:port, for example {default}")
    return host, int(port)
