"""Files with the secrets of a testbed's processes."""

from __future__ import annotations

import json
from pathlib import Path

from railwright_testbed import Entrance, identity


def test_kubeconfig_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """The nodes' proxies share one, and it is written again for each node: one that starts must
    not find an empty file."""
    authority, path = tmp_path / "ca.crt", tmp_path / "parts" / "kube-proxy.kubeconfig"
    authority.write_text("an authority")
    entrance = Entrance("https://127.0.0.1:6443", authority)
    identity.write_kubeconfig(path, entrance, token="first")
    with path.open(encoding="utf-8") as reader:
        identity.write_kubeconfig(path, entrance, token="second")
        assert json.load(reader)["users"][0]["user"] == {"token": "first"}
    assert json.loads(path.read_text())["users"][0]["user"] == {"token": "second"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]
