"""One element of a valid file dropped, doubled or garbled, by hypothesis."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

JUNK = st.sampled_from([None, 17, -1, "", "\x7f?!", "[", "n[1-", [], {}, [None], {"x": "y"}])
JUNK_TEXTS = st.sampled_from(["", "?", "hello there", "=", "-1", "0x", "99999999999999999999"])
WAYS = st.sampled_from(["drop", "double", "garble"])


@dataclass(frozen=True, slots=True)
class Changed:
    """``touched`` are the hosts or devices that hang on the element."""

    text: str
    touched: frozenset[str]


def one_line(text: str, data: st.DataObject) -> tuple[str, str]:
    """The text with one line changed, and that line."""
    lines = text.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    line, way = lines[at], data.draw(WAYS)
    if way == "garble":
        cut = data.draw(st.integers(0, len(line)))
        lines[at] = line[:cut] + data.draw(JUNK_TEXTS)
    else:
        lines[at : at + 1] = [] if way == "drop" else [line, line]
    return "\n".join(lines) + "\n", line


def one_entry(document: Any, places: Sequence[tuple[Any, ...]], data: st.DataObject) -> int:
    """Change what stands at one of the places of a document, and return which."""
    which = data.draw(st.integers(0, len(places) - 1))
    *path, key = places[which]
    holder = document
    for step in path:
        holder = holder[step]
    way = data.draw(WAYS)
    if way == "drop":
        del holder[key]
    elif way == "double" and isinstance(holder, list):
        holder.insert(data.draw(st.integers(0, len(holder))), copy.deepcopy(holder[key]))
    elif isinstance(holder[key], dict) and data.draw(st.booleans()):
        inner = data.draw(st.sampled_from(sorted(holder[key]) or [""]))
        holder[key] = {**holder[key], inner: data.draw(JUNK)}
    else:
        holder[key] = data.draw(JUNK)
    return which


def one_element(text: str, data: st.DataObject) -> Changed:
    """XML with one element changed; devices are known by their addresses."""
    root = ElementTree.fromstring(text)
    parents = [(parent, child) for parent in root.iter() for child in parent]
    parent, child = parents[data.draw(st.integers(0, len(parents) - 1))]
    way = data.draw(WAYS)
    around = child
    while not has_address(around) and around is not root:
        around = next(above for above, inner in parents if inner is around)
    touched = addresses(around)
    if way == "drop":
        parent.remove(child)
    elif way == "double":
        parent.insert([*parent].index(child) + 1, copy.deepcopy(child))
    elif child.attrib:
        name = data.draw(st.sampled_from(sorted(child.attrib)))
        child.attrib[name] = data.draw(JUNK_TEXTS)
    else:
        child.text = data.draw(JUNK_TEXTS)
    return Changed(ElementTree.tostring(root, encoding="unicode"), touched)


def has_address(element: ElementTree.Element) -> bool:
    return any(key in each.attrib for each in element.iter() for key in ("busid", "pci_busid"))


def addresses(element: ElementTree.Element) -> frozenset[str]:
    """What its devices are called; NCCL has no address for the second function of a card."""
    keys = ("busid", "pci_busid", "name")
    said = (each.attrib.get(key, "") for each in element.iter() for key in keys)
    return frozenset(said) - {""}
