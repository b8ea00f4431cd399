"""What the kernel killed for memory, from either version of cgroups, mounted in either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright import memory

V1 = "9:name=systemd:/\n4:cpu,memory:/kubepods/pod7\n0::/\n"
V2 = "0::/kubepods/pod7\n"
EVENTS = {"memory.events": "low 0\noom 2\noom_kill {}\noom_group_kill 0\n", "memory.max": "{}"}
CONTROL = {
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    "memory.limit_in_bytes": "{}",
}


def mounted(tmp_path: Path, at: str, membership: str, *, kills: int, limit: str) -> memory.Files:
    """A cgroup at this path, as the kernel shows it to its members."""
    folder = tmp_path / "cgroup" / at
    folder.mkdir(parents=True)
    files = CONTROL if membership == V1 else EVENTS
    for (name, text), value in zip(files.items(), (str(kills), limit), strict=True):
        (folder / name).write_text(text.format(value))
    stated = tmp_path / "membership"
    stated.write_text(membership)
    found = memory.find_files(tmp_path / "cgroup", stated)
    return found


@pytest.mark.parametrize(
    ("at", "membership", "unlimited"),
    [
        ("kubepods/pod7", V2, "max\n"),
        (".", V2, "max\n"),
        ("memory/kubepods/pod7", V1, "9223372036854771712\n"),
        ("memory", V1, "9223372036854771712\n"),
    ],
)
def test_kills_and_limit_are_read(tmp_path: Path, at: str, membership: str, unlimited: str) -> None:
    files = mounted(tmp_path, at, membership, kills=3, limit="536870912\n")
    assert (memory.count_kills(files), memory.read_limit(files)) == (3, 2**29)
    files.limit.write_text(unlimited)
    assert memory.read_limit(files) is None


def test_nothing_is_claimed_without_cgroups(tmp_path: Path) -> None:
    none = memory.find_files(tmp_path, tmp_path / "none")
    assert (memory.count_kills(none), memory.read_limit(none)) == (0, None)
    files = mounted(tmp_path, ".", V2, kills=1, limit="7")
    files.events.unlink()
    files.limit.unlink()
    assert (memory.count_kills(files), memory.read_limit(files)) == (0, None)
