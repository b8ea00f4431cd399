"""The documentation site builds, and a page that it cannot have fails the build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from architecture import pages, site, tree


def test_site_builds_without_warnings(tmp_path: Path) -> None:
    """Every page is in the navigation, and every link and anchor leads somewhere."""
    site.write(tmp_path / "pages")
    built = _build(tmp_path)
    assert built.returncode == 0, f"{built.stderr}\nthe navigation is in mkdocs.yml"
    assert (tmp_path / "site/reference/trainingjob/index.html").exists()


def test_site_with_a_wrong_page_does_not_build(tmp_path: Path) -> None:
    site.write(tmp_path / "pages")
    planted = "# New\n\n[gone](gone.md), [elsewhere](install.md#elsewhere)\n"
    (tmp_path / "pages/new.md").write_text(planted, encoding="utf-8")
    built = _build(tmp_path)
    assert built.returncode != 0
    for found in ("- new.md", "'gone.md'", "'install.md#elsewhere'"):
        assert found in built.stderr, built.stderr


def test_link_to_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    page.write_text("[all](docs/)", encoding="utf-8")
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr(site, "MOVED", {page: Path("index.md")})
    monkeypatch.setattr(pages, "pages", lambda: (page,))
    with pytest.raises(site.LinkError, match=r"README\.md: docs/ is no file"):
        site.write(tmp_path / "pages")


def _build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the pages of a folder with the configuration of the repository."""
    config = folder / "mkdocs.yml"
    ours = f"INHERIT: {tree.ROOT / 'mkdocs.yml'}\ndocs_dir: pages\nsite_dir: site\n"
    config.write_text(ours, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
