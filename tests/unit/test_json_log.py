"""Log lines are JSON objects, also those of kopf, whose records have objects of its own."""

from __future__ import annotations

import json
import logging

import kopf
import pytest

from railwright_process import json_log


def test_kopfs_warning_is_a_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    json_log.start()
    extra = {"settings": kopf.OperatorSettings(), "k8s_skip": True, "k8s_ref": {"name": "default"}}
    logging.getLogger("kopf.objects").warning("slow", extra=extra)
    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["level"]) == ("slow", "WARNING")
    assert line["k8s_ref"] == {"name": "default"}
    assert "settings" not in line
