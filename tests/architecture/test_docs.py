"""Documentation is tested where it lists things: links, files, commands, closed sets."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import tomllib

import pytest

from architecture import pages, tree
from architecture.tree import Finding
from railwright_scheduler.attempt.phases import EDGES, Phase

CLOSED_SETS = (
    ("railwright_scheduler.model.reasons", "CODES"),
    ("railwright_scheduler.attempt.phases", "Phase"),
    ("railwright_scheduler.attempt.causes", "CauseCode"),
    ("railwright_operator.report.status", "UNHEALTHY"),
)


def test_every_link_leads_somewhere() -> None:
    findings = pages.broken_links()
    assert not findings, tree.report(findings, "links are relative to their page")


def test_lists_look_alike_on_site_and_host() -> None:
    findings = [
        Finding(tree.name_of(page), line, why)
        for page in (*pages.pages(), tree.ROOT / "CHANGELOG.md", tree.ROOT / "SECURITY.md")
        for line, why in pages.misread_lines(page)
    ]
    assert not findings, tree.report(findings, "see `pages.misread_lines`")


def test_every_file_that_is_named_exists() -> None:
    file_names = {path.name for path in tree.text_files()}
    findings = [
        Finding(tree.name_of(page), line, f"there is no {name}")
        for page in pages.pages()
        for line, name in pages.file_names(page)
        if not ((tree.ROOT / name).exists() or ("/" not in name and name in file_names))
    ]
    assert not findings, tree.report(findings, "files are named by their path in the repository")


def test_every_test_that_is_named_exists() -> None:
    named = [(page, *found) for page in pages.pages() for found in pages.named_tests(page)]
    assert len(named) > 20, "docs/faults.md names the test of each fault"
    findings = [
        Finding(tree.name_of(page), line, f"{path} has no {name}")
        for page, line, path, name in named
        if not (tree.ROOT / path).exists() or name not in _functions(path)
    ]
    assert not findings, tree.report(findings, "tests are named by file and function")


def test_every_row_about_a_threat_names_its_test() -> None:
    page = tree.ROOT / "docs/security.md"
    tested = {line for line, _, _ in pages.named_tests(page)}
    findings = [
        Finding(tree.name_of(page), line, text)
        for line, text in enumerate(tree.text_of(page).splitlines(), start=1)
        if text.startswith("| ") and not text.endswith("| test |") and line not in tested
    ]
    assert not findings, tree.report(findings, "a control without a test is a hope")


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (tree.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    variables = {f"{name}=" for name in re.findall(r"\$\((?:origin )?([A-Z_]+)\)", makefile)}
    commands = [
        (page, command.split())
        for page in (*pages.pages(), tree.ROOT / "CHANGELOG.md")
        for command in pages.commands(page)
        if command.startswith("make ")
    ]
    assert len(targets) >= 5
    assert len(commands) > 50
    findings = [
        Finding(tree.name_of(page), 1, f"there is no {word} of make {target}")
        for page, (_, target, *rest) in commands
        for word in (target, *re.findall(r"[A-Z_]+=", " ".join(rest)))
        if word not in targets | variables
    ]
    assert not findings, tree.report(findings, "`make` lists the targets")


def test_every_command_of_a_code_block_has_a_prompt() -> None:
    """`make check-docs` runs what has one."""
    command = re.compile(r"(docker|helm|kubectl|make|python3?|railwright|sed) ")
    findings = [
        Finding(tree.name_of(page), 1, line)
        for page in pages.pages()
        for block in pages.code_blocks(page)
        for before, line in itertools.pairwise(block.splitlines())
        if command.match(line) and not before.endswith(("\\", "|"))
    ]
    assert not findings, tree.report(findings, "a command begins with `$ `")


def test_every_make_target_has_a_description() -> None:
    makefile = (tree.ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    explained = set(re.findall(r"^([a-z][\w-]*):.*## .+$", makefile, re.MULTILINE))
    assert {name for line in phony for name in line.split()} == explained


@pytest.mark.parametrize(("module", "name"), CLOSED_SETS)
def test_every_member_of_a_closed_set_is_explained(module: str, name: str) -> None:
    members = getattr(importlib.import_module(module), name)
    assert members
    explained = set().union(*(pages.code_words(page) for page in pages.explanations()))
    missing = sorted(str(member) for member in members if str(member) not in explained)
    assert not missing, f"no page under docs/ explains these of {module}.{name}: {missing}"


def test_page_has_every_change_of_phase() -> None:
    """No other, and each once; the picture above the table has every phase."""
    text = tree.text_of(tree.ROOT / "docs/life-of-a-job.md")
    section = text.partition("## Phases\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| (`.+?) \| ", section, re.MULTILINE)
    changes = [
        (Phase(source), Phase(target))
        for sources, target_words in rows
        for source in re.findall(r"`(\w+)`", sources)
        for target in re.findall(r"`(\w+)`", target_words)
    ]
    assert sorted(changes) == sorted(EDGES)
    picture = section.split("```")[1]
    assert [phase for phase in Phase if phase.value not in picture] == []


def _functions(path: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    module = tree.parse(tree.ROOT / path)
    return {node.name for node in ast.walk(module) if isinstance(node, kinds)}


def test_changelog_begins_with_this_version() -> None:
    project = tomllib.loads(tree.text_of(tree.ROOT / "pyproject.toml"))["project"]
    first = re.search(r"^## (\S+),", tree.text_of(tree.ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert first is not None
    assert first[1] == project["version"]
