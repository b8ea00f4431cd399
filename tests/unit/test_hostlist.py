"""Host lists, by examples; tests/property compares them with a naive reader."""

from __future__ import annotations

import pytest

from railwright_topology.sources import hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ["login"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[099-101,7]", ["n099", "n100", "n101", "n7"]),
        ("r[1-2]n[01-02]-ib", ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"]),
        ("a,b[1,3],c", ["a", "b1", "b3", "c"]),
        ("[7-8]", ["7", "8"]),
        (" a, b\n", ["a", "b"]),
        ("", []),
        (" , ", []),
    ],
)
def test_host_list_expands_in_order(text: str, names: list[str]) -> None:
    assert hostlist.expand(text, 100) == names


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("n[1-3", "bracket without its other one"),
        ("n1-3]", "bracket without its other one"),
        ("n[[1]]", "bracket without its other one"),
        ("n[]", "neither a number nor a range"),
        ("n[1,]", "neither a number nor a range"),
        ("n[a-c]", "neither a number nor a range"),
        ("n[1-2-3]", "neither a number nor a range"),
        ("n[000x333]", "neither a number nor a range"),
        ("n[٣]", "neither a number nor a range"),
        ("n[3-1]", "runs backwards"),
        ("n" * 254, "at most 253 characters"),
        ("n[1]" * 200, "at most 253 characters"),
    ],
)
def test_invalid_host_list_is_refused_with_its_rule(text: str, rule: str) -> None:
    with pytest.raises(hostlist.HostlistError, match=rule):
        hostlist.expand(text, 1000)


@pytest.mark.parametrize(
    "text", ["n[1-11]", "n[1-4]x[1-3]", "n[0-999999999999999999]", "a,n[1-10]", "n[1-6],m[1-5]"]
)
def test_more_names_than_fit_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(hostlist.HostlistError, match="at most 10"):
        hostlist.expand(text, 10)
    assert len(hostlist.expand("n[1-5],m[1-5]", 10)) == 10
