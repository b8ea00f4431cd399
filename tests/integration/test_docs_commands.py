"""Commands of kubectl and helm in the text of pages: those of code blocks are run by
``make check-docs``.

kubectl itself parses them, and asks an API server about kinds and fields. What would change
something is a dry run. Objects that a reader has, and this cluster has not, are not found.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from architecture import pages, tree
from fixtures import doc_examples
from railwright_testbed import ControlPlane, helm
from railwright_testbed.control_plane import KubectlError

CHANGES = {"apply", "cordon", "delete", "label", "patch", "taint", "uncordon"}
READS = {"config", "describe", "exec", "explain", "get", "logs"}
RESTARTS = ["rollout", "restart"]
"""kubectl has no dry run for it: it finds nothing here."""

PLACEHOLDER = re.compile(r"\b(JOB|NAME|NODE)\b")
NOT_FOUND = re.compile(
    r'(?i)error from server \(NotFound\): .* "[\w.-]+" not found( in namespace .*)?$'
)


def _commands(program: str) -> list[list[str]]:
    """The words of each command, once."""
    found = {
        code: shlex.split(code)[1:]
        for page in (*pages.pages(), tree.ROOT / "CHANGELOG.md", tree.ROOT / "SECURITY.md")
        for code in pages.inline_codes(page)
        if code.startswith(f"{program} ")
    }
    return [words for _, words in sorted(found.items())]


def _verb(words: list[str]) -> list[str]:
    """The verb and what follows it: options of kubectl itself may come before it."""
    return words[2:] if words[0] == "-n" else words


def _command_id(words: list[str]) -> str:
    return " ".join(words)


@pytest.mark.parametrize(
    "words",
    # See tests/architecture/test_reference.py for those of the plugin.
    [each for each in _commands("kubectl") if _verb(each)[0] != "railwright"],
    ids=_command_id,
)
def test_kubectl_in_a_text_is_accepted(
    control_plane: ControlPlane, words: list[str], tmp_path: Path
) -> None:
    verb, *rest = _verb(words)
    if not rest:
        assert "Usage:" in control_plane.kubectl(verb, "--help")
        return
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(doc_examples.job("train")), encoding="utf-8")
    given = [_argument(word, file) for word in words if word != "-w"]
    if verb in CHANGES and "--dry-run=server" not in given:
        given.append("--dry-run=server")
    else:
        assert verb in READS or [verb, rest[0]] == RESTARTS or "--dry-run=server" in given, verb
    try:
        control_plane.kubectl(*given)
    except KubectlError as error:
        refusals = error.stderr.splitlines()
        if not refusals or not all(map(NOT_FOUND.search, refusals)):
            raise


def _argument(word: str, file: Path) -> str:
    """A word as kubectl gets it: paths are those of the repository, names those of no object."""
    path = file if word == file.name else tree.ROOT / word
    return str(path) if path.exists() else PLACEHOLDER.sub("none", word)


def test_helm_in_a_text_has_its_verb() -> None:
    commands = _commands("helm")
    assert commands
    for verb, *words in commands:
        text = helm.run(verb, "--help")
        assert f"helm {verb} " in text
        assert all(word in text for word in words if word.startswith("--")), (verb, words)
