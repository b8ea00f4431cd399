"""Huawei's tables of ranks, written by the format's public description."""

from __future__ import annotations

from typing import Any

Table = dict[str, Any]


def table(version: str, *servers: str, devices: int = 8) -> Table:
    """So many devices in each server, which are ranked in that order."""

    def device(server: int, number: int) -> Table:
        found = {
            "device_id": str(number),
            "device_ip": f"10.0.{server}.{number}",
            "rank_id": str(server * devices + number),
        }
        super_id = {"super_device_id": str(server * devices + number)}
        return found | super_id if version == "1.2" else found

    found: Table = {
        "status": "completed",
        "version": version,
        "server_count": str(len(servers)),
        "server_list": [
            {"server_id": server, "device": [device(at, n) for n in range(devices)]}
            for at, server in enumerate(servers)
        ],
    }
    if version == "1.2":
        listed = [{"server_id": server} for server in servers]
        found["super_pod_list"] = [{"super_pod_id": "0", "server_list": listed}]
    return found
