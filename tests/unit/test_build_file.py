"""``images/Dockerfile`` for people builds the images that the tests of the deployment run."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from architecture import tree
from railwright_testbed.product_images import RECIPES, Recipe

BUILD_FILE = (tree.ROOT / "images" / "Dockerfile").read_text()
STAGE = re.compile(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", re.MULTILINE | re.DOTALL)
STAGES = {name: (base, steps) for base, name, steps in STAGE.findall(BUILD_FILE)}


def test_build_file_has_a_target_for_each_image() -> None:
    assert STAGES.keys() == {recipe.name for recipe in RECIPES} | {"build", "base"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_target_has_packages_and_program_of_the_recipe(recipe: Recipe) -> None:
    base, steps = STAGES[recipe.name]
    assert base == "base"
    assert f"ENTRYPOINT {json.dumps(list(recipe.entrypoint))}" in steps
    copied = re.findall(r"^COPY --from=build (\S+) /opt/railwright$", steps, re.MULTILINE)
    assert copied == ([f"/{recipe.lock.removesuffix('.lock')}"] if recipe.lock else [])


def test_all_packages_are_installed_from_locks_with_hashes() -> None:
    _, steps = STAGES["build"]
    installs = re.findall(r"pip install (?:[^&\\\n]|\\\n)+", steps)
    assert len(installs) == 4
    ours = [each for each in installs if each.rstrip().endswith("/wheel/*.whl")]
    assert len(ours) == 1
    assert all("--require-hashes" in each for each in installs if each not in ours)
    assert all("--no-deps" in each for each in ours)


def test_images_run_as_nobody() -> None:
    assert re.search(r"^USER 65532:65532$", STAGES["base"][1], re.MULTILINE)


def test_build_reads_what_the_wheel_is_made_of_and_no_more() -> None:
    first, *others = (tree.ROOT / ".dockerignore").read_text().splitlines()[1:]
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {each.partition("/")[0] for each in packages}
    needed |= {"pyproject.toml", project["project"]["readme"], "images/*.lock"}
    assert first == "*"
    assert {each.removeprefix("!") for each in others if each.startswith("!")} == needed
