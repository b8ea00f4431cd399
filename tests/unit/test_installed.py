"""What is installed has every package, and each command starts its own process."""

from __future__ import annotations

import tomllib

import pytest

from architecture import tree
from fixtures.command import run

PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_wheel_has_every_package() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(tree.PACKAGES)


def test_each_command_starts_its_process() -> None:
    scripts = PROJECT["project"]["scripts"]
    for name in ("railwright-operator", "railwright-controllers"):
        assert scripts[name] == f"{name.replace('-', '_')}.__main__:main"


def test_command_shows_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"railwright {PROJECT['project']['version']}\n"


@pytest.mark.parametrize("command", [(), ("queue",)])
def test_short_option_shows_the_help(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*command, "-h") == 0
    assert capsys.readouterr().out.startswith("Usage: railwright")
