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

What ``scontrol show topology`` prints is read too. A line that breaks a rule is left out. A file
that has switches and blocks is two sources.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from railwright_topology.accounts import Account, Basis
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import Switch
from railwright_topology.wiring import WiringError

CONF = "topology.conf"
YAML = "topology.yaml"

CHARACTERS_MAX = 1 << 22
NAME_MAX = 63

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$")
_PAIR = re.compile(r'\s*([\w.]+)\s*=\s*(?:"([^"]*)"|(\S*))(?=\s|$)')
_FIELDS = {
    "switchname": ("switchname", "switches", "nodes", "linkspeed", "level"),
    "blockname": ("blockname", "nodes", "blockindex", "blocksize"),
    "blocksizes": ("blocksizes",),
}
_KINDS = ("tree", "block", "flat")
_YAML_KEYS = ("topology", "cluster_default", "clusterDefault", *_KINDS)
"""Topograph wrote some of them in another case before 0.2."""
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")

_Statement = tuple[int, Mapping[str, str]]


def parse_conf(text: str) -> tuple[Account, ...]:
    """Read a ``topology.conf``. Raises WiringError where no node has a place in it."""
    if len(text) > CHARACTERS_MAX:
        raise WiringError(CONF, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    omissions = Omissions(CONF)
    statements = [_statement(line, said, omissions) for line, said in _lines(text)]
    tiers = trees.tiers(_conf_switches(statements, omissions), omissions)
    blocks = _block_tiers(
        _conf_blocks(statements, omissions), _sizes(statements, omissions), omissions
    )
    found = [Account(CONF, Basis.TOLD, tiers)] if tiers else []
    if blocks:
        found.append(Account(f"{CONF} blocks" if tiers else CONF, Basis.TOLD, blocks))
        if tiers:
            omissions.note(1, "switches and blocks are in it: they are read as two sources")
    return _with_omissions(found, omissions, "no node is in it")


def parse_yaml(text: str) -> tuple[Account, ...]:
    """Read a ``topology.yaml``: an account of each topology in it, that of the cluster first. A
    flat one knows of no tiers."""
    omissions = Omissions(YAML)
    found: dict[str, Account] = {}
    default = None
    for entry in documents.read(YAML, text, omissions).each("topologies"):
        with omissions.part():
            _refuse_unknown_kind(entry)
            fields = entry.fields("a topology", _YAML_KEYS, omissions)
            name = _topology_name(entry, fields, found)
            tiers = _yaml_tiers(entry, fields, omissions)
            found[name] = Account(f"{YAML} {name}", Basis.TOLD, tiers)
            said = fields.get("cluster_default") or fields.get("clusterDefault")
            if default is None and said and _is_true(said):
                default = name
    its = tuple(found[name] for name in sorted(found, key=lambda name: name != default))
    return _with_omissions(its, omissions, "no topology is in it")


def _with_omissions(
    found: Sequence[Account], omissions: Omissions, rule: str
) -> tuple[Account, ...]:
    """The file's remarks stand at its first source."""
    if not found:
        raise omissions.refuse(rule)
    return (replace(found[0], strange=omissions.sentences), *found[1:])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the line that it starts in."""
    start, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub(r"\1", raw)
        start = start or number
        if continued := _CONTINUED.search(line):
            joined += line[: continued.start()] + continued[1]
            continue
        said = re.sub(r"\\(.?)", r"\1", joined + line)
        if said.strip():
            yield start, said
        start, joined = 0, ""
    if joined.strip():
        yield start, re.sub(r"\\(.?)", r"\1", joined)


def _statement(line: int, said: str, omissions: Omissions) -> _Statement:
    """Its keys in small letters; only the first one's where the rest cannot be read, so that a
    block keeps its place in the order, and nothing where that cannot be read either."""
    found: dict[str, str] = {}
    at = 0
    while said[at:].strip():
        pair = _PAIR.match(said, at)
        if pair is None:
            omissions.note(
                line, f"{said[at:].strip()[:80]!r} is no Key=value: the line is left out"
            )
            return line, dict([*found.items()][:1])
        key, value = pair[1].lower(), pair[2] if pair[2] is not None else pair[3]
        at = pair.end()
        known = _FIELDS.get(next(iter(found), key))
        if known is None:
            first = pair[1][:80]
            rule = f"{first!r}: a line starts with SwitchName=, BlockName= or BlockSizes="
            omissions.note(line, f"{rule}: it is left out")
            return line, {}
        if key not in known:
            omissions.note(line, f"{pair[1][:80]!r} does not belong to {known[0]}: it is left out")
        elif key in found:
            omissions.note(line, f"{pair[1]!r} stands twice: the line is left out")
            return line, dict([*found.items()][:1])
        else:
            found[key] = value
    return line, found


def _conf_switches(statements: Iterable[_Statement], omissions: Omissions) -> Iterator[Switch]:
    for line, said in statements:
        if "switchname" not in said:
            continue
        below: dict[str, list[str]] = {"switches": [], "nodes": []}
        for key, its in below.items():
            if said.get(key):
                with omissions.part():
                    its += trees.names(CONF, line, said[key])
        yield Switch(line, said["switchname"], below["switches"], below["nodes"])


def _conf_blocks(statements: Sequence[_Statement], omissions: Omissions) -> Iterator[Switch]:
    """Blocks in their order; a line of a file of blocks that cannot be read stands for one."""
    any_block = any("blockname" in said for _, said in statements)
    for line, said in statements:
        nodes: list[str] = []
        if said.get("nodes") and "blockname" in said:
            with omissions.part():
                nodes = trees.names(CONF, line, said["nodes"])
        if "blockname" in said or (any_block and not said):
            yield Switch(line, said.get("blockname") or f"line {line}", nodes=nodes)


def _sizes(statements: Iterable[_Statement], omissions: Omissions) -> Sequence[int]:
    lines = [(line, said["blocksizes"]) for line, said in statements if "blocksizes" in said]
    for line, _ in lines[1:]:
        omissions.note(line, "BlockSizes stands twice: the first counts")
    for line, said in lines[:1]:
        with omissions.part():
            return _steps(CONF, line, said.split(","))
    return ()


def _refuse_unknown_kind(entry: Value) -> None:
    keys = entry.entries("a topology")
    if len([kind for kind in _KINDS if kind in keys]) != 1:
        unknown = next((f", not {key[:80]!r}" for key in keys if key not in _YAML_KEYS), "")
        raise entry.error(f"a topology is one of {', '.join(_KINDS)}{unknown}: it is left out")


def _topology_name(entry: Value, fields: Mapping[str, Value], taken: Mapping[str, object]) -> str:
    if "topology" not in fields:
        raise entry.error("a topology has a name: topology")
    name = fields["topology"].text("a topology's name")
    if name in taken or len(name) > NAME_MAX or not name.isprintable():
        rule = f"is described twice, or has more than {NAME_MAX} printable characters"
        raise entry.error(f"topology {name[:80]!r} {rule}")
    return name


def _yaml_tiers(
    entry: Value, fields: Mapping[str, Value], omissions: Omissions
) -> tuple[Mapping[str, str], ...]:
    if "flat" in fields:
        # From 26.05 on its options may stand there; none of them is about where nodes are.
        flat = fields["flat"]
        if isinstance(flat.content, str) and not _is_true(flat):
            raise flat.error("flat is true, or another kind stands here")
        return ()
    if "tree" in fields:
        tree = fields["tree"].fields("tree", ("switches",), omissions)
        tiers = trees.tiers(_yaml_switches(tree, omissions), omissions)
    else:
        known = ("block_sizes", "blockSizes", "blocks")
        block = fields["block"].fields("block", known, omissions)
        tiers = _block_tiers(
            _yaml_blocks(block, omissions), _yaml_sizes(block, omissions), omissions
        )
    if not tiers:
        raise entry.error("no node is in it")
    return tiers


def _yaml_switches(tree: Mapping[str, Value], omissions: Omissions) -> Iterator[Switch]:
    for entry in tree["switches"].each("switches") if "switches" in tree else ():
        with omissions.part():
            known = ("switch", "children", "nodes")
            fields = entry.fields("a switch", known, omissions)
            name = _yaml_name(entry, fields, "switch")
            children, nodes = (_yaml_names(fields, key, omissions) for key in known[1:])
            yield Switch(entry.line, name, children, nodes)


def _yaml_blocks(block: Mapping[str, Value], omissions: Omissions) -> Iterator[Switch]:
    for entry in block["blocks"].each("blocks") if "blocks" in block else ():
        name, nodes = f"line {entry.line}", list[str]()
        with omissions.part():
            fields = entry.fields("a block", ("block", "nodes"), omissions)
            name = _yaml_name(entry, fields, "block")
            nodes = _yaml_names(fields, "nodes", omissions)
        yield Switch(entry.line, name, nodes=nodes)


def _yaml_sizes(block: Mapping[str, Value], omissions: Omissions) -> Sequence[int]:
    with omissions.part():
        if sizes := block.get("block_sizes") or block.get("blockSizes"):
            said = [size.text("a number of nodes") for size in sizes.each("block sizes")]
            return _steps(YAML, sizes.line, said) if said else ()
    return ()


def _yaml_name(entry: Value, fields: Mapping[str, Value], kind: str) -> str:
    if kind not in fields:
        raise entry.error(f"a {kind} has a name: {kind}")
    return fields[kind].text(f"a {kind}'s name")


def _yaml_names(fields: Mapping[str, Value], key: str, omissions: Omissions) -> list[str]:
    value = fields.get(key)
    if value is None or not value.content:
        return []
    listed = value.content if isinstance(value.content, tuple) else (value,)
    found: list[str] = []
    for each in listed:
        with omissions.part():
            found += trees.names(YAML, each.line, each.text("a host list"))
    return found


def _steps(source: str, line: int, sizes: Sequence[str]) -> list[int]:
    """How many blocks each larger one is made of, from the numbers of nodes."""
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", size.strip()) for size in sizes):
        raise WiringError(source, line, "block sizes are numbers of nodes, such as 18,36")
    base, *larger = map(int, sizes)
    steps = [size // base for size in larger]
    whole = all(step * base == size for step, size in zip(steps, larger, strict=True))
    rising = all(low < high for low, high in itertools.pairwise([1, *steps]))
    if not whole or not rising or any(step & (step - 1) for step in steps):
        rule = f"block sizes double, or more: {base}, {2 * base}, {4 * base}"
        raise WiringError(source, line, rule)
    return steps


def _block_tiers(
    blocks: Iterable[Switch], steps: Sequence[int], omissions: Omissions
) -> tuple[Mapping[str, str], ...]:
    described = [*blocks]
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
    said = value.text("true or false").lower()
    if said not in _TRUE + _FALSE:
        raise value.error(f"{said[:80]!r} is neither true nor false")
    return said in _TRUE
