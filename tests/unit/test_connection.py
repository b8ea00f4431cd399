"""Unreadable credentials raise one kind of error, whatever is wrong with the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from railwright_kube import connection
from railwright_kube.connection import CredentialsError

CONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}


@pytest.mark.parametrize("left", ["", "{", "[]", "a", "contexts: 1", "\x00", "users: [{}]"])
def test_a_file_that_is_being_replaced_is_no_surprise(tmp_path: Path, left: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(CONFIG))
    source = str(path)
    assert connection.token(source) == "secret"
    path.write_text(left)
    with pytest.raises(CredentialsError):
        connection.token(source)
    path.unlink()
    with pytest.raises(CredentialsError):
        connection.token(source)
