"""``make sbom``: every package of the images, with its licence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def bills() -> Path:
    command = ["make", "--old-file=.venv/.installed", "sbom", f"PYTHON={sys.executable}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return ROOT / "build" / "sbom"


@pytest.mark.parametrize("lock", ["agent", "operator"])
def test_bill_has_each_locked_package_with_its_licence(bills: Path, lock: str) -> None:
    bill = json.loads((bills / f"{lock}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    found = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each for each in bill["components"]}
    versions = {name: each["version"] for name, each in found.items()}
    assert versions == dict(LOCKED.findall((ROOT / "images" / f"{lock}.lock").read_text()))
    assert [name for name, each in found.items() if not each.get("licenses")] == []
