"""Mutants of what the controllers publish after they were killed, paused or cut off."""

from __future__ import annotations

from simulation.planted import CONTROLLERS, TEST, Hunt, Mutant


def _hunt(name: str, file: str, old: str, new: str, seed: int) -> Hunt:
    return Hunt(Mutant(name, file, old, new, TEST, package=CONTROLLERS), "controllers", seed)


HUNTS = (
    _hunt(
        "hardware is published before agents report again",
        "report/fabric_reporter.py",
        'if is_caught_up or "nodes" not in published:',
        "if True:",
        1000,
    ),
    _hunt(
        "NodeHealths are written before agents report again",
        "report/node_healths.py",
        "if not self.discovery.is_caught_up or self.discovery.unread_files():",
        "if self.discovery.unread_files():",
        1005,
    ),
    _hunt(
        "agents that reported before are not awaited",
        "discovery.py",
        "has_all = self.is_assembled and awaited <= self.found.reported",
        "has_all = self.is_assembled",
        1000,
    ),
    _hunt(
        "the Fabric follows an invalid file after a restart",
        "report/fabric_reporter.py",
        "if unread or not is_assembled:",
        "if not is_assembled:",
        1000,
    ),
    _hunt(
        "the fabric is assembled before lists are whole",
        "wiring.py",
        "await informer.wait_synced()",
        "pass",
        1000,
    ),
)
