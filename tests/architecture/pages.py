"""The documentation as the architecture tests read it: pages, links, file names, headings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from architecture import tree
from architecture.tree import Finding

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"^[\w./-]+\.(py|md|toml|yaml|yml|json|mod|lock)$")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"([-*]|\d+\.) ")
ITEM_INDENT = 4
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def pages() -> tuple[Path, ...]:
    """README.md and everything below docs/."""
    found = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").rglob("*.md"))]
    return tuple(found)


def explanations() -> tuple[Path, ...]:
    """The pages that people wrote: those of docs/reference list what the code has."""
    generated = tree.ROOT / "docs/reference"
    return tuple(page for page in pages() if page.parent != generated)


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Each link to somewhere in the repository, with its line."""
    for line, target in _matches(_LINK, _CODE.sub("", _without_fences(page))):
        if not re.match(r"[a-z]+:", target):
            yield line, target


def broken_links() -> list[Finding]:
    """Links of all pages that lead nowhere in the repository."""
    return [
        Finding(tree.name_of(page), line, f"nothing is at {target}")
        for page in pages()
        for line, target in links(page)
        if not _leads_somewhere(page, target)
    ]


def file_names(page: Path) -> Iterator[tuple[int, str]]:
    """Each file named in code marks, with its line: a path, or the bare name of a module."""
    for line, code in _matches(_CODE, _without_fences(page)):
        if _FILE.match(code) and ("/" in code or code.endswith(".py")):
            yield line, code


def misread_lines(page: Path) -> Iterator[tuple[int, str]]:
    """Each line that Markdown of the site reads as another part than that of code hosts, with why:
    there a list follows an empty line, and what belongs to an item has four spaces."""
    lines = _without_fences(page).splitlines()
    for number, (before, line) in enumerate(itertools.pairwise(["", *lines]), start=1):
        begins = _ITEM.match(line) and not _ITEM.match(before) and not before.startswith(" ")
        if begins and before.strip():
            yield number, "no empty line before a list"
        elif 0 < len(line) - len(line.lstrip(" ")) < ITEM_INDENT:
            yield number, f"less than {ITEM_INDENT} spaces"


def named_tests(page: Path) -> Iterator[tuple[int, str, str]]:
    """Each test named in code marks by its file and function, with its line."""
    for line, code in _matches(_CODE, _without_fences(page)):
        if named := _TEST.fullmatch(code):
            yield line, named[1], named[2]


def code_words(page: Path) -> set[str]:
    """Everything the page has in code marks, and every word of its code blocks."""
    words = {*inline_codes(page)}
    for block in code_blocks(page):
        words.update(re.findall(r"[\w.-]+", block))
    return words


def yaml_blocks(page: Path) -> list[str]:
    """Every code block that is marked as YAML."""
    return _YAML.findall(tree.text_of(page))


def commands(page: Path) -> Iterator[str]:
    """Each line of a code block and each text in code marks, without the prompt of a shell."""
    yield from inline_codes(page)
    for block in code_blocks(page):
        yield from (line.removeprefix("$ ").strip() for line in block.splitlines())


def code_blocks(page: Path) -> list[str]:
    """Each code block with its fences."""
    return _FENCE.findall(tree.text_of(page))


def inline_codes(page: Path) -> list[str]:
    """Each text in code marks, but for those of code blocks."""
    return [code for _, code in _matches(_CODE, _without_fences(page))]


def anchors(page: Path) -> set[str]:
    """What a link can point at in this page, spelled as code hosts spell headings."""
    return {_anchor(heading) for heading in _HEADING.findall(_without_fences(page))}


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def _without_fences(page: Path) -> str:
    """The page with its code blocks emptied; lines keep their numbers."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), tree.text_of(page))


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    for match in pattern.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1]


def _leads_somewhere(page: Path, target: str) -> bool:
    place, _, anchor = target.partition("#")
    linked = (page.parent / place).resolve() if place else page
    if not linked.exists():
        return False
    return not anchor or linked.suffix != ".md" or anchor in anchors(linked)
