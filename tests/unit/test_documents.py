"""YAML with lines: what is kept as text, and what is not read at all."""

from __future__ import annotations

import pytest
import yaml

from railwright_topology.sources import documents
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def plain(value: Value) -> object:
    """A document without its lines."""
    if isinstance(value.content, str):
        return value.content
    if isinstance(value.content, tuple):
        return [plain(part) for part in value.content]
    return {key: plain(part) for key, part in value.content.items()}


def test_scalars_stay_the_text_they_are_and_know_their_line() -> None:
    text = 'no: 0012\non: [1_000, 1e3, 12:30:45]\nnothing: ~\nsaid: "~"\nempty:\n'
    found = documents.read("test", text)
    assert plain(found) == {
        "no": "0012",
        "on": ["1_000", "1e3", "12:30:45"],
        "nothing": "",
        "said": "~",
        "empty": "",
    }
    entries = found.entries("things")
    assert [entry.line for entry in entries.values()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("", 1, "nothing is in it"),
        ("# a comment\n", 1, "nothing is in it"),
        (BOMB, 1, "anchors and aliases are not read"),
        ("a: 1\nb: *a\n", 2, "is not YAML|anchors and aliases are not read"),
        ("a: 1\nb: !!python/name:os.system\n", 2, "tags are not read"),
        ("a: 1\nb: 2\na: 3\n", 3, "'a' stands twice"),
        ("a: 1\n? [b]\n: 2\n", 2, "a key is text"),
        ("a: 1\n---\nb: 2\n", 2, "a second document starts"),
        ("a: 1\nb: [1, 2\n", 3, "is not YAML"),
        ("a:\n\tb: 1\n", 2, "is not YAML"),
        ("a: \x00", 1, "is not YAML"),
        ("a: \ud800", 1, "is not YAML"),
        ("\n" + "[" * 25 + "]" * 25, 2, "more than 24 levels deep"),
        ("[" * 100_000, 1, "more than 24 levels deep"),
        ("x" * (documents.CHARACTERS_MAX + 1), 1, "at most 1048576"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(
    text: str, line: int, rule: str, loader: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_LOADER", loader)
    with pytest.raises(WiringError, match=rule) as refused:
        documents.read("test", text)
    assert str(refused.value).startswith(f"test, line {line}: ")


def test_value_of_wrong_type_is_refused_with_its_line() -> None:
    omissions = Omissions("test")
    found = documents.read("test", "a: [1]\nb: {c: 1}\nd: x\ne:\n", omissions).entries("letters")
    for name in ("a", "b", "e"):
        with pytest.raises(WiringError, match="a name stands here, as text"):
            found[name].text("a name")
    with pytest.raises(WiringError, match="line 3: a list of names stands here"):
        found["d"].each("names")
    with pytest.raises(WiringError, match="line 1: a mapping of names stands here"):
        found["a"].entries("names")
    assert not found["b"].fields("it", ("f", "g")).fields
    (stated,) = omissions.sentences
    assert stated.startswith("line 2: 'c' is no field of it, the nearest is ")
    assert not found["e"].each("names")
    assert not found["e"].entries("names")
