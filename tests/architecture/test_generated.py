"""What is generated is committed, and is what the generator makes today."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from architecture import (
    cli_page,
    constants,
    metrics_page,
    reference_pages,
    timeouts_page,
    tree,
)
from railwright_dashboards import generate


def test_the_committed_kinds_are_what_the_models_generate() -> None:
    command = [sys.executable, "-m", "railwright_testbed.crds", "crds", "--check"]
    answer = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, f"run `make generate`\n{answer.stdout}{answer.stderr}"
    assert list((tree.ROOT / "crds").glob("*.yaml")), "crds/ holds no kind"


def test_page_of_metrics_is_what_the_collectors_have() -> None:
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.rendered(), (
        "run `make generate`"
    )


def test_page_of_commands_is_what_they_print() -> None:
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.rendered(), "run `make generate`"


def test_reference_pages_are_what_the_code_has() -> None:
    folder, rendered = reference_pages.FOLDER, reference_pages.rendered()
    pages = {*folder.iterdir(), *rendered}
    written = {page: page.read_text(encoding="utf-8") for page in pages}
    assert written == rendered, "run `make generate`"


def test_every_time_of_the_code_is_on_its_page() -> None:
    """A new constant gets a row in ``timeouts.toml``, or stands there as none that is shown."""
    found = constants.times(without=timeouts_page.NOT_READ)
    written = timeouts_page.shown() | timeouts_page.left_out()
    assert len(found) > 200
    assert not found - written, f"not in timeouts.toml: {sorted(found - written)}"
    fields = {place for place in written if place.rsplit(".", 2)[1][0].isupper()}
    assert not written - found - fields, f"no such constant: {sorted(written - found - fields)}"


def test_dashboards_and_rules_are_what_the_code_has() -> None:
    written = {
        path.name: path.read_text(encoding="utf-8")
        for path in generate.FOLDER.iterdir()
        if path.is_file()
    }
    assert written == generate.files(), "run `make generate`"


def test_lock_file_has_every_required_version() -> None:
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = {line for extra in extras for line in extra if "==" in line}
    lock = (tree.ROOT / "requirements.lock").read_text(encoding="utf-8").lower()
    locked = set(re.findall(r"^[a-z0-9._-]+==[^ \\]+", lock, re.MULTILINE))
    missing = sorted(line for line in asked if line.lower() not in locked)
    assert len(asked) > 10
    assert not missing, f"run `make lock`: it lacks {missing}"


def test_make_installs_no_package_without_its_hash() -> None:
    """Our own package has none, and gets no other."""
    recipes = (tree.ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r".*pip install.*", recipes)
    without = [line for line in installs if not re.search("--require-hashes|--no-deps", line)]
    assert len(installs) > 3
    assert not without
    assert "tool run" not in recipes, "it resolves what its tool needs anew"
