"""What is installed has every package, and each command starts its own process."""

from __future__ import annotations

import tomllib

from architecture import tree

PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_wheel_has_every_package() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(tree.PACKAGES)


def test_each_command_starts_its_process() -> None:
    scripts = PROJECT["project"]["scripts"]
    for name in ("railwright-operator", "railwright-controllers"):
        assert scripts[name] == f"{name.replace('-', '_')}.__main__:main"
