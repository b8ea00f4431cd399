"""The commands in the text of pages, as ``make check-docs`` runs them."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer
from typer.main import get_command

from architecture import pages
from bench import check_docs
from fixtures import doc_examples
from fixtures.doc_examples import INLINE_JOB, NAMES, Block
from railwright_cli.__main__ import app

LAST = ("suspend", "resume", "cancel")
COMMANDS = doc_examples.inline_commands().commands


def test_inline_commands_have_all_arguments() -> None:
    """No placeholder is left, and nothing that only names a command."""
    group: Any = get_command(app)
    assert len(COMMANDS) >= 20
    for text in COMMANDS:
        assert not re.search("[A-Z]{2,}", text), text
        name, *words = shlex.split(text.removeprefix("kubectl ").removeprefix("railwright "))
        if not name.startswith("-"):
            group.get_command(typer.Context(group), name).make_context(name, words)


def test_names_of_commands_are_in_texts() -> None:
    """Each name without arguments is on a page, or is one no longer."""
    found = {code for page in pages.pages() for code in pages.inline_codes(page)}
    assert found >= NAMES


def test_job_ends_after_all_that_read_it() -> None:
    ends = [text for text in COMMANDS if text.split()[1] in ("suspend", "resume", "cancel")]
    followed = f"railwright logs -f {INLINE_JOB}"
    suspend, resume, cancel = (f"railwright {verb} {INLINE_JOB}" for verb in LAST)
    assert ends == [suspend, resume, cancel]
    assert COMMANDS[-4:] == (suspend, resume, followed, cancel)


def test_submissions_are_dry_runs() -> None:
    submissions = [text for text in COMMANDS if " submit " in text]
    assert len(submissions) == 2
    assert all("--dry-run" in text for text in submissions)


def test_failed_inline_commands_are_counted_apart() -> None:
    results = [
        (Block("a", ("one", "two")), ["two"]),
        (Block("b", ("three",)), []),
    ]
    assert check_docs._count("commands", results) == {"commands": 3, "commands_run": 2}
