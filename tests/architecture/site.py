"""Write the pages as the documentation site has them: ``python -m architecture.site build/docs``.

In the repository, links lead from docs/ to files beside it, and README.md is the first page. A site
generator reads one folder. So that folder gets README.md as its index, the pages of docs/, and
below ``repository`` a page for each other file that a page links to. Links are adapted; nothing
else of a page changes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from architecture import pages, tree

DOCS = tree.ROOT / "docs"
MOVED = {
    tree.ROOT / "README.md": Path("index.md"),
    tree.ROOT / "CHANGELOG.md": Path("changelog.md"),
}
REPOSITORY = Path("repository")
"""The folder of pages that are not in the navigation."""

LANGUAGES = {".py": "python", ".yaml": "yaml"}
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


class LinkError(ValueError):
    """A link that the site cannot have."""


def write(folder: Path) -> None:
    """Write the pages into a folder, which is emptied first. Raises LinkError."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    left, done = {*pages.pages(), *MOVED}, set[Path]()
    while left:
        source = left.pop()
        done.add(source)
        text, linked = _page(source)
        place = folder / _place(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        left |= linked - done


def _place(source: Path) -> Path:
    """Where the site has a file of the repository, below its folder."""
    if source in MOVED:
        return MOVED[source]
    if source.is_relative_to(DOCS):
        return source.relative_to(DOCS)
    below = REPOSITORY / source.relative_to(tree.ROOT)
    return below if source.suffix == ".md" else below.with_name(f"{below.name}.md")


def _page(source: Path) -> tuple[str, set[Path]]:
    """The text of a page, and the files that it links to and that are to be pages too."""
    text = source.read_text(encoding="utf-8")
    if source.suffix != ".md":
        name, language = tree.name_of(source), LANGUAGES.get(source.suffix, "")
        return f"# `{name}`\n\n````{language}\n{text}\n````\n", set()
    linked: set[Path] = set()

    def adapted(found: re.Match[str]) -> str:
        if re.match(r"[a-z]+:|#", found[1]):
            return found[0]
        target, _, anchor = found[1].partition("#")
        path = (source.parent / target).resolve()
        if not path.is_file():
            raise LinkError(f"{tree.name_of(source)}: {target} is no file")
        if path.suffix == ".md" or not path.is_relative_to(DOCS):
            linked.add(path)
        place = os.path.relpath(_place(path), _place(source).parent)
        return f"]({place}{'#' if anchor else ''}{anchor})"

    # Every second part is code.
    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(adapted, part) for part in parts[::2]]
    return "".join(parts), linked


if __name__ == "__main__":
    write(Path(sys.argv[1]))
