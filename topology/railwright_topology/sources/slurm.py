"""Slurm's ``topology.conf`` and ``topology.yaml`` -> who stands below which switches or blocks.

    SwitchName=leaf-1 Nodes=gpu[01-16]
    SwitchName=leaf-2 Nodes=gpu[17-32]
    SwitchName=spine Switches=leaf-[1-2]

    BlockName=b1 Nodes=gpu[01-18]
    BlockSizes=18,36

A line is read as Slurm reads it: keys in any case, values in quotes or without blanks, a comment
behind ``#``, and one line for two where the first ends in a backslash. Blocks form larger ones with
those that follow in the file: of the sizes 18 and 36, two and two. A block without nodes takes its
place in that order.

What ``scontrol show topology`` and ``scontrol show topoconf`` print is read too. The first has the
size of the blocks that Slurm plans with in each line of one, and those of the larger ones:

    BlockName=b1 BlockIndex=0 Nodes=gpu[01-18] BlockSize=18
    AggregatedBlock=b[1-2] BlockIndex=2 Nodes=gpu[01-36] BlockSize=36

The second has every kind of topology in each, and those that it is not empty. A line that breaks a
rule is left out. A file that has switches and blocks is two sources.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Fields, Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import TreeNode
from railwright_topology.wiring import WiringError

CONF = "topology.conf"
YAML = "topology.yaml"

CHARACTERS_MAX = 1 << 22
NAME_MAX = 63

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$")
_ESCAPED = re.compile(r"\\(.?)")
_PAIR = re.compile(r'\s*([\w.]+)\s*=\s*(?:"([^"]*)"|(\S*))(?=\s|$)')
_SIZE = re.compile(r"\s*[1-9][0-9]{0,8}\s*")
_FIELDS = {
    "switchname": ("switchname", "switches", "nodes", "linkspeed", "level"),
    "blockname": ("blockname", "nodes", "blockindex", "blocksize"),
    "aggregatedblock": ("aggregatedblock", "nodes", "blockindex", "blocksize"),
    "blocksizes": ("blocksizes",),
}
_KINDS = ("tree", "block", "flat")
_YAML_KEYS = ("topology", "cluster_default", "clusterDefault", *_KINDS)
"""Topograph wrote some of them in another case before 0.2."""
_TRUTHS = dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)


def parse_conf(text: str) -> tuple[SourceReport, ...]:
    """Read a ``topology.conf``. Raises WiringError where no node has a place in it."""
    if len(text) > CHARACTERS_MAX:
        raise WiringError(CONF, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    omissions = Omissions(CONF)
    statements = [_statement(Value(omissions, line, words)) for line, words in _lines(text)]
    switches = (_switch(each, "switchname") for each in statements if "switchname" in each)
    tiers = trees.tiers(switches, omissions)
    sizes = [each["blocksizes"] for each in statements if "blocksizes" in each]
    for value in sizes[1:]:
        omissions.add(value.error("BlockSizes stands twice: the first counts"))
    sizes = sizes or _printed_sizes(statements, omissions)
    blocks = _block_tiers(_conf_blocks(statements), sizes[:1], omissions)
    found = [SourceReport(CONF, Provenance.IMPORTED, tiers)] if tiers else []
    if blocks:
        found.append(SourceReport(f"{CONF} blocks" if tiers else CONF, Provenance.IMPORTED, blocks))
        if tiers:
            omissions.note(1, "switches and blocks are in it: they are read as two sources")
    return _with_remarks(found, omissions, "no node is in it")


def parse_yaml(text: str) -> tuple[SourceReport, ...]:
    """Read a ``topology.yaml``: an account of each topology in it, that of the cluster first. A
    flat one knows of no tiers."""
    omissions = Omissions(YAML)
    found: dict[str, SourceReport] = {}
    default = None
    for entry in documents.read(YAML, text, omissions).each("topologies"):
        with omissions.part():
            entry = _without_unused_kinds(entry)
            _refuse_unknown_kind(entry)
            record = entry.fields("a topology", _YAML_KEYS)
            name = record["topology"].text("a topology's name")
            if name in found or len(name) > NAME_MAX or not name.isprintable():
                rule = f"is described twice, or has more than {NAME_MAX} printable characters"
                raise entry.error(f"topology {name[:80]!r} {rule}")
            found[name] = SourceReport(f"{YAML} {name}", Provenance.IMPORTED, _yaml_tiers(record))
            chosen = any(
                record.get(key, _is_true, False) for key in ("cluster_default", "clusterDefault")
            )
            default = name if default is None and chosen else default
    source_reports = [found[name] for name in sorted(found, key=lambda name: name != default)]
    return _with_remarks(source_reports, omissions, "no topology is in it")


def _with_remarks(
    found: Sequence[SourceReport], omissions: Omissions, rule: str
) -> tuple[SourceReport, ...]:
    """The file's remarks are those of its first source."""
    if not found:
        raise omissions.refuse(rule)
    return (replace(found[0], strange=omissions.sentences), *found[1:])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the line that it starts in."""
    start, joined = 0, ""
    # An empty line at the end closes a statement that the last line continues.
    for number, raw in enumerate((*text.splitlines(), ""), 1):
        line = _COMMENT.sub(r"\1", raw)
        start = start or number
        if continued := _CONTINUED.search(line):
            joined += line[: continued.start()] + continued[1]
            continue
        statement = _ESCAPED.sub(r"\1", joined + line)
        if statement.strip():
            yield start, statement
        start, joined = 0, ""


def _statement(value: Value) -> Fields:
    """Its keys in small letters; only the first one's where the rest cannot be read, so that a
    block keeps its place in the order, and nothing where that cannot be read either."""
    text = value.text("a statement")
    found: dict[str, Value] = {}
    at = 0
    try:
        while rest := text[at:].strip():
            pair = _PAIR.match(text, at)
            if pair is None:
                raise value.error(f"{rest[:80]!r} is no Key=value: the line is left out")
            at = pair.end()
            _add_pair(value, found, pair)
    except WiringError as error:
        value.omissions.add(error)
        found = dict([*found.items()][:1])
    return Fields(value, found)


def _conf_blocks(statements: Sequence[Fields]) -> list[TreeNode]:
    """In their order; a line of a file of blocks that cannot be read stands for one."""
    any_block = any("blockname" in each for each in statements)
    return [
        _switch(each, "blockname")
        for each in statements
        if "blockname" in each or (any_block and not each.fields)
    ]


def _printed_sizes(statements: Sequence[Fields], omissions: Omissions) -> list[Value]:
    """What BlockSizes would be, of lines that Slurm printed; nothing without larger blocks. Those
    at the end that are no larger than those of a smaller size are not printed."""
    found: dict[str, dict[int, Value]] = {"blockname": {}, "aggregatedblock": {}}
    for each in statements:
        kind = next(iter(each.fields), "")
        if kind in found and "blocksize" in each:
            with omissions.part():
                size = each["blocksize"]
                found[kind].setdefault(int(size.match(_SIZE, "a number of nodes")), size)
    larger = found["aggregatedblock"]
    if larger and not found["blockname"]:
        rule = "no block has its BlockSize: the larger blocks are left out"
        omissions.add(next(iter(larger.values())).error(rule))
        return []
    base = [*found["blockname"].values()][:1]
    content = (*base, *(larger[size] for size in sorted(larger)))
    return [replace(content[1], content=content)] if larger else []


def _add_pair(statement: Value, found: dict[str, Value], pair: re.Match[str]) -> None:
    key, name = pair[1].lower(), pair[1][:80]
    allowed = _FIELDS.get(next(iter(found), key))
    if allowed is None:
        rule = "a line starts with SwitchName=, BlockName= or BlockSizes=: it is left out"
        raise statement.error(f"{name!r}: {rule}")
    if key in found:
        raise statement.error(f"{name!r} stands twice: the line is left out")
    if key in allowed:
        text = pair[3] if pair[2] is None else pair[2]
        found[key] = replace(statement, content=text)
        if key == "blocksizes":
            sizes = tuple(replace(statement, content=size) for size in text.split(","))
            found[key] = replace(statement, content=sizes)
    else:
        rule = f"{name!r} does not belong to {allowed[0]}: it is left out"
        statement.omissions.add(statement.error(rule))


def _without_unused_kinds(entry: Value) -> Value:
    """A topology of some kind without what stands empty in it, and without ``flat: false``."""
    found = entry.entries("a topology")
    used = {key: each for key, each in found.items() if not _is_empty(each)}
    if not {"tree", "block"} & used.keys():
        return entry if "flat" not in used else replace(entry, content=used)
    flat = used.get("flat")
    if flat and isinstance(flat.content, str) and not _is_true(flat):
        del used["flat"]
    return replace(entry, content=used)


def _is_empty(value: Value) -> bool:
    """Whether it is a mapping or a list that has nothing but such."""
    if isinstance(value.content, str):
        return False
    entries = value.content if isinstance(value.content, tuple) else value.content.values()
    return all(map(_is_empty, entries))


def _refuse_unknown_kind(entry: Value) -> None:
    keys = entry.entries("a topology")
    if len([kind for kind in _KINDS if kind in keys]) != 1:
        unknown = next((f", not {key[:80]!r}" for key in keys if key not in _YAML_KEYS), "")
        raise entry.error(f"a topology is one of {', '.join(_KINDS)}{unknown}: it is left out")


def _yaml_tiers(record: Fields) -> tuple[Mapping[str, str], ...]:
    if "flat" in record:
        # From 26.05 on its options may stand there; none of them is about where nodes are.
        flat = record["flat"]
        if isinstance(flat.content, str) and not _is_true(flat):
            raise flat.error("flat is true, or another kind stands here")
        return ()
    if "tree" in record:
        tree = record["tree"].fields("tree", ("switches",))
        switches = tree.some("switches", _yaml_switch)
        tiers = trees.tiers(switches, record.omissions)
    else:
        block = record["block"].fields("block", ("block_sizes", "blockSizes", "blocks"))
        blocks = block.some("blocks", _yaml_block)
        sizes = [block[key] for key in ("block_sizes", "blockSizes") if key in block]
        tiers = _block_tiers(blocks, sizes[:1], record.omissions)
    if not tiers:
        raise record.value.error("no node is in it")
    return tiers


def _yaml_switch(entry: Value) -> TreeNode:
    record = entry.fields("a switch", ("switch", "children", "nodes"))
    record["switch"].text("a switch's name")
    return _switch(record, "switch", "children")


def _yaml_block(entry: Value) -> TreeNode:
    """One that cannot be read keeps its place in the order."""
    record = Fields(entry, {})
    with entry.omissions.part():
        found = entry.fields("a block", ("block", "nodes"))
        found["block"].text("a block's name")
        record = found
    return _switch(record, "block")


def _switch(record: Fields, name: str, children: str = "switches") -> TreeNode:
    """A switch or a block; without a name it is called by its line."""
    line = record.value.line
    called = str(record[name].content) if name in record else f"line {line}"
    return TreeNode(line, called, _names(record, children), _names(record, "nodes"))


def _names(record: Fields, key: str) -> list[str]:
    if key not in record or not (content := record[key].content):
        return []
    found: list[str] = []
    for value in content if isinstance(content, tuple) else (record[key],):
        with record.omissions.part():
            found += trees.expand(value)
    return found


def _steps(value: Value) -> list[int]:
    """How many blocks each larger one is made of, from the numbers of nodes."""
    sizes = [size.text("a number of nodes") for size in value.each("block sizes")]
    if not sizes:
        return []
    if not all(map(_SIZE.fullmatch, sizes)):
        raise value.error("block sizes are numbers of nodes, such as 18,36")
    base, *larger = map(int, sizes)
    steps = [size // base for size in larger]
    whole = [step * base for step in steps] == larger
    rising = all(low < high for low, high in itertools.pairwise([1, *steps]))
    if not whole or not rising or any(step & (step - 1) for step in steps):
        raise value.error(f"block sizes double, or more: {base}, {2 * base}, {4 * base}")
    return steps


def _block_tiers(
    described: Sequence[TreeNode], sizes: Sequence[Value], omissions: Omissions
) -> tuple[Mapping[str, str], ...]:
    """Blocks, and the larger ones of each size."""
    steps: list[int] = []
    for value in sizes:
        with omissions.part():
            steps = _steps(value)
    found = trees.members(described, omissions)
    if not found:
        return ()
    order = list(dict.fromkeys(block.name for block in described))
    tiers = [found]
    for step in steps:
        larger: dict[str, str] = {}
        for some in (order[at : at + step] for at in range(0, len(order), step)):
            larger.update(dict.fromkeys(some, f"{some[0]}..{some[-1]}"))
        tiers.append({node: larger[block] for node, block in found.items()})
    return tuple(tiers)


def _is_true(value: Value) -> bool:
    text = value.text("true or false").lower()
    if text not in _TRUTHS:
        raise value.error(f"{text[:80]!r} is neither true nor false")
    return _TRUTHS[text]
