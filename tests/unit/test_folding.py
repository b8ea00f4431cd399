"""Many names in few characters."""

from __future__ import annotations

import pytest

from railwright_topology.folding import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["login"], "login"),
        (["node-3"], "node-3"),
        (["node-2", "node-1", "node-3"], "node-[1-3]"),
        (["node-008", "node-009", "node-010", "node-020"], "node-[008-010,020]"),
        (["n9", "n10"], "n10,n9"),
        ([f"leaf-{rail}-{n}" for rail in range(8) for n in range(2)], "leaf-[0-7]-[0-1]"),
        (["leaf-0-0", "leaf-0-1", "leaf-1-0"], "leaf-0-[0-1],leaf-1-0"),
        (["gpu1.rack2.example", "gpu2.rack2.example", "spare"], "gpu[1-2].rack2.example,spare"),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold(names) == folded
